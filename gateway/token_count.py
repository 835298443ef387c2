"""How many tokens an answer has that broke off, as the engine that is to go on with it counts."""

from __future__ import annotations

import asyncio

from adapters.continuation import Counted, count_in, count_request
from adapters.types import EngineFailed

from .endpoint import Endpoint
from .small_answer import fetch
from .upstream.contract import TransportError

WITHIN_S = 2.0
AT_A_TIME = 8
MOST_PIECES = 1000


class NotCounted(Exception):
    """The engine did not say how many tokens a text has; the message says what it did.

    Attributes:
        failure: What it answered, or why there was no answer; None if it was too late, or held no count.
    """

    def __init__(self, why: str, failure: TransportError | EngineFailed | None = None) -> None:
        super().__init__(why)
        self.failure = failure


class TokenCount:
    """Asks one endpoint.

    Args:
        endpoint: Whose engine counts.
        pool: Its pool's name, the model's for clients.
    """

    def __init__(self, endpoint: Endpoint, pool: str) -> None:
        self._endpoint = endpoint
        self._model = endpoint.config.model or pool
        self._places = asyncio.Semaphore(AT_A_TIME)

    async def of_broken(self, pieces: list[str], told: str, within_s: float = WITHIN_S) -> Counted:
        """Counts an answer that broke off.

        The tokens of its text are not always those that it was made of: a model may say two line ends as one token
        where its tokenizer, which sees what follows, makes two of them. A chunk holds whole tokens, though, and nearly
        always one, so where the text has not as many of them as there are chunks, each of these is counted by itself.

        Args:
            pieces: Its chunks' texts.
            told: What the engine is told of it: all, or all but the white space at its end.
            within_s: For all of it.

        Raises:
            NotCounted: The engine does not say, or not in time.
        """
        try:
            async with asyncio.timeout(within_s):
                return await self._of_broken(pieces, told)
        except TimeoutError as error:
            raise NotCounted(f"not within {within_s:.3g} s") from error

    async def _of_broken(self, pieces: list[str], told: str) -> Counted:
        text = "".join(pieces)
        again = text[len(told) :]
        counts = await self._of([told, text, again])
        given = await self._given(pieces, counts[text])
        return Counted(given - counts[again], counts[told])

    async def _given(self, pieces: list[str], in_text: int) -> int:
        """How many tokens the chunks were made of, whose text has ``in_text``."""
        fewest, most = len(pieces), max(len(pieces), in_text)
        if in_text == fewest or len(set(pieces)) > MOST_PIECES:
            return most
        counts = await self._of(pieces)
        given = sum(counts[piece] for piece in pieces)
        # Some tokenizers put a mark before every text: they cannot count parts, and what they say is too much
        return given if fewest <= given <= most else most

    async def _of(self, texts: list[str]) -> dict[str, int]:
        """The tokens of each text. Once one is not counted, no further one is asked for.

        Raises:
            NotCounted: The engine did not say.
        """
        distinct = list(dict.fromkeys(texts))
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._one(text)) for text in distinct]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return {text: task.result() for text, task in zip(distinct, asked, strict=True)}

    async def _one(self, text: str) -> int:
        if not text:
            return 0
        question = count_request(self._endpoint.adapter.name, self._model, text)
        if question is None:
            raise NotCounted("its engine cannot be asked")
        headers = ((b"content-type", b"application/json"),)
        async with self._places:
            wire = self._endpoint.wire("POST", question.path, question.body, headers)
            try:
                answer = await fetch(self._endpoint.upstream, wire, WITHIN_S)
            except TransportError as error:
                raise NotCounted(str(error), error) from error
        status = answer.head.status
        if status != 200:
            raise NotCounted(f"status {status}", self._endpoint.adapter.read_error(status, answer.body))
        count = None if answer.too_long else count_in(answer.body)
        if count is None:
            raise NotCounted("its answer holds no tokens")
        return count
