"""TGI 3.3.7: strict types, a 200 before validation, a role in every delta, tool calls that end without a finish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.fakes.dialects.answer import Ask, Json, Kind, Said
from tests.fakes.dialects.checks import (
    as_list,
    as_object,
    given,
    misfit,
    openai_ask,
    sampling_of,
    tool_names,
    turns_of,
    words,
)
from tests.fakes.dialects.serving import Dialect
from tests.fakes.dialects.voice import (
    CREATED_UNIX_S,
    DONE,
    OWN_MODEL,
    Headers,
    Refused,
    Turn,
    Voice,
    chat_logprobs,
    empty,
    of_text,
    page,
    sse,
    stream_head,
    usage_numbers,
)
from tests.fakes.scripted import Body, Head, Request, Script, Step, end, eof, wire

FINGERPRINT = "3.3.7-sha-1234567"
COMPUTE = (("x-compute-type", "gpu+optimized"), ("x-compute-characters", "2"))
TIMES = (
    *COMPUTE,
    ("x-compute-time", "0.25"),
    ("x-total-time", "250"),
    ("x-validation-time", "1"),
    ("x-queue-time", "7"),
    ("x-inference-time", "242"),
    ("x-time-per-token", "30"),
    ("x-prompt-tokens", "12"),
    ("x-generated-tokens", "4"),
)
STREAM: Headers = (("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no"))
TEXT_TYPE = "text/plain; charset=utf-8"
MOST_STOP_STRINGS = 4
MOST_TOP_TOKENS = 5
MOST_PROMPTS = 4
END_TOKEN = "</s>"
OVERLOADED = "Model is overloaded"

# What the router's types take: null only where a field is optional, and not at all in these two
FIELDS: Mapping[str, str] = {
    "model": "str null",
    "stream": "bool",
    "stream_options": "object",
    "max_tokens": "int null",
    "max_completion_tokens": "int null",
    "temperature": "number null",
    "top_p": "number null",
    "frequency_penalty": "number null",
    "presence_penalty": "number null",
    "seed": "int null",
    "stop": "strs null",
    "logit_bias": "list null",
    "n": "int null",
}
CHAT_FIELDS = {
    **FIELDS,
    "messages": "list",
    "logprobs": "bool null",
    "top_logprobs": "int null",
    "response_format": "object null",
    "tools": "list null",
    "tool_choice": "str object null",
}
TEXT_FIELDS = {**FIELDS, "prompt": "str strs", "repetition_penalty": "number null"}
PARAMETERS: Mapping[str, str] = {
    "max_new_tokens": "int null",
    "do_sample": "bool",
    "temperature": "number null",
    "top_k": "int null",
    "top_p": "number null",
    "typical_p": "number null",
    "repetition_penalty": "number null",
    "frequency_penalty": "number null",
    "stop": "strs",
    "seed": "int null",
    "best_of": "int null",
    "return_full_text": "bool null",
    "truncate": "int null",
    "details": "bool",
    "decoder_input_details": "bool",
    "top_n_tokens": "int null",
    "grammar": "object null",
    "watermark": "bool",
    "adapter_id": "str null",
}


class Invalid(Exception):
    """Found by the validation workers: in a stream, after the 200."""


def plain(status: int, message: str) -> Refused:
    return Refused(page(message, status, content_type=TEXT_TYPE))


def wrong_type(name: str) -> Refused:
    words = f"Failed to deserialize the JSON body into the target type: {name}: invalid type or value"
    return plain(422, words)


def error_page(status: int, message: str, kind: str) -> Script:
    return page({"error": message, "error_type": kind}, status)


def check_sampling(values: Json, *, greedy_by_zero: bool) -> None:
    """Bounds of the validation workers."""
    temperature, top_p = values.get("temperature"), values.get("top_p")
    if temperature is not None and temperature <= 0 and not (greedy_by_zero and temperature == 0):
        raise Invalid("`temperature` must be strictly positive")
    if top_p is not None and not 0 < top_p < 1:
        raise Invalid("`top_p` must be > 0.0 and < 1.0")
    penalty = values.get("repetition_penalty")
    if penalty is not None and penalty <= 0:
        raise Invalid("`repetition_penalty` must be strictly positive")
    if not -2 <= (values.get("frequency_penalty") or 0) <= 2:
        raise Invalid("`frequency_penalty` must be >= -2.0 and <= 2.0")
    if len(values.get("stop") or ()) > MOST_STOP_STRINGS:
        raise Invalid(f"`stop` supports up to {MOST_STOP_STRINGS} stop sequences")
    if given(values, "max_new_tokens", "max_tokens", "max_completion_tokens") == 0:
        raise Invalid("`max_new_tokens` must be strictly positive")


def told_model(ask: Ask) -> str:
    """The name in the answer: any but ``tgi`` is taken for an adapter's."""
    return OWN_MODEL if ask.model in ("", "tgi") else ask.model


class _Tgi(Voice):
    most_calls = 1
    comment = b":\n\n"
    think_tags = True
    fields: Mapping[str, str]

    def ask(self, body: Json) -> Ask:
        ask = self.read(body)
        try:
            self.check(body)
        except Invalid as invalid:
            raise Refused(self._told(ask, 422, f"Input validation error: {invalid}", "validation")) from None
        return ask

    def read(self, body: Json) -> Ask:
        """Reads what has the right types; raises Refused for the rest."""
        raise NotImplementedError

    def check(self, body: Json) -> None:
        """Raises Invalid for values out of their bounds."""
        raise NotImplementedError

    def frame(self, message: str, kind: str) -> list[Step]:
        """The error in a stream, up to the end of the body."""
        raise NotImplementedError

    def _told(self, ask: Ask, status: int, message: str, kind: str) -> Script:
        if ask.stream:
            return [self.head(ask), *self.frame(message, kind)]
        return error_page(status, message, kind)

    def head(self, ask: Ask) -> Head:
        return stream_head(*STREAM, *COMPUTE)

    def broken(self, ask: Ask) -> list[Step]:
        return self.frame(f"Request failed during generation: {self.say.message}", "generation")

    def failed(self, ask: Ask) -> Script:
        return self._told(ask, 424, f"Request failed during generation: {self.say.message}", "generation")

    def full(self, ask: Ask) -> Script:
        return self._told(ask, 429, OVERLOADED, "overloaded")


class _OpenAi(_Tgi):
    kind: Kind
    required: str

    def read(self, body: Json) -> Ask:
        wrong = misfit(body, self.fields) or (None if self.required in body else self.required)
        if wrong:
            raise wrong_type(wrong)
        if "max_tokens" in body and "max_completion_tokens" in body:
            raise wrong_type("duplicate field `max_tokens`")
        if (body.get("seed") or 0) < 0:
            raise wrong_type("seed")
        if body.get("suffix") is not None:
            raise Refused(error_page(422, "Suffix is not supported and can be achieved by prompt", "validation"))
        return self.read_fields(body)

    def read_fields(self, body: Json) -> Ask:
        raise NotImplementedError

    def check(self, body: Json) -> None:
        check_sampling(body, greedy_by_zero=True)

    def frame(self, message: str, kind: str) -> list[Step]:
        return [sse({"error": {"message": message, "http_status_code": 422}}), DONE, end()]

    def usage(self, said: Said) -> Json:
        prompt, completion = said.prompt_tokens, said.completion_tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class Chat(_OpenAi):
    kind: Kind = "chat"
    fields = CHAT_FIELDS
    required = "messages"

    def read_fields(self, body: Json) -> Ask:
        for message in body["messages"]:
            if message.get("content") is None and not message.get("tool_calls"):
                raise wrong_type("messages")
        form, tools = body.get("response_format"), body.get("tools")
        if form is not None and tools:
            raise Refused(error_page(422, "Grammar and tools are mutually exclusive", "tool_error"))
        ask = openai_ask({**body, "response_format": None}, "chat")
        penalty = body.get("presence_penalty")
        sampling = [(name, value) for name, value in ask.sampling if name != "presence_penalty"]
        if penalty is not None:
            sampling.append(("repetition_penalty", penalty + 2.0))
        schema = None if form is None else grammar(form)
        return replace(ask, n=1, schema=schema, tools=tool_names(tools) if ask.tools else (), sampling=tuple(sampling))

    def check(self, body: Json) -> None:
        penalty = body.get("presence_penalty")
        check_sampling({**body, "repetition_penalty": None if penalty is None else penalty + 2.0}, greedy_by_zero=True)
        if (body.get("top_logprobs") or 0) > MOST_TOP_TOKENS:
            raise Invalid(f"`top_n_tokens` must be >= 0 and <= {MOST_TOP_TOKENS}")

    def chunk(self, ask: Ask, choices: list[Json], usage: Json | None = None) -> Step:
        top: Json = {"object": "chat.completion.chunk", "id": "", "created": CREATED_UNIX_S, "model": told_model(ask)}
        return sse({**top, "system_fingerprint": FINGERPRINT, "choices": choices, "usage": usage})

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        kind, text, call = turn.output
        delta: Json = {"role": "assistant"}
        if kind in ("call", "arguments"):
            function = {"name": text, "arguments": ""} if kind == "call" else {"name": None, "arguments": text}
            delta["tool_calls"] = [{"index": call, "id": "0", "type": "function", "function": function}]
        else:
            delta["content"] = text
        finish = "length" if turn.last and said.finish == "length" else None
        logprobs = chat_logprobs(of_text(turn), ask.logprobs)
        return [self.chunk(ask, [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}])]

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        steps: list[Step] = []
        if said.finish == "stop":
            reason = "stop_sequence" if said.stopped_by else "stop"
            delta = {"role": "assistant", "content": ""}
            steps.append(self.chunk(ask, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]))
        if ask.usage:
            steps.append(self.chunk(ask, [], self.usage(said)))
        return [*steps, DONE, end()]

    def whole(self, ask: Ask, said: Said) -> Script:
        message: Json = {"role": "assistant", "content": said.text}
        finish = {"tool_calls": "stop"}.get(said.finish, said.finish)
        if said.calls:
            name, arguments = said.calls[0]
            function = {"description": None, "name": name, "arguments": arguments}
            message = {"role": "assistant", "tool_calls": [{"id": "0", "type": "function", "function": function}]}
        logprobs = chat_logprobs(said.pieces, ask.logprobs)
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}
        top: Json = {"object": "chat.completion", "id": "", "created": CREATED_UNIX_S, "model": told_model(ask)}
        answer = {**top, "system_fingerprint": FINGERPRINT, "choices": [choice], "usage": self.usage(said)}
        return page(answer, headers=TIMES)


class Text(_OpenAi):
    kind: Kind = "text"
    fields = TEXT_FIELDS
    required = "prompt"

    def read_fields(self, body: Json) -> Ask:
        ask = openai_ask({**body, "logprobs": None, "stream_options": None}, "text")
        return replace(ask, n=1)

    def check(self, body: Json) -> None:
        super().check(body)
        if len(as_list(body["prompt"]) or ()) > MOST_PROMPTS:
            raise Invalid(f"Number of prompts exceeds the maximum allowed batch size of {MOST_PROMPTS}")

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        ends = turn.last and said.finish == "length"
        return [self._chunk(turn.index, turn.output.text, "length" if ends else "", self.usage(said) if ends else None)]

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        if said.finish == "length":
            return [DONE, end()]
        reason = "stop_sequence" if said.stopped_by else "eos_token"
        ends = [self._chunk(index, "", reason, self.usage(said)) for index in range(ask.choices)]
        return [*ends, DONE, end()]

    def _chunk(self, index: int, text: str, finish: str, usage: Json | None) -> Step:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
        top: Json = {"object": "text_completion", "id": "", "created": CREATED_UNIX_S, "choices": [choice]}
        told = {} if usage is None else {"usage": usage}
        return sse({**top, "model": OWN_MODEL, "system_fingerprint": "3.3.7-native", **told})

    def whole(self, ask: Ask, said: Said) -> Script:
        ended = {"logprobs": None, "finish_reason": said.finish}
        choices = [{"index": i, "text": said.text, **ended} for i in range(ask.choices)]
        prompt, completion = usage_numbers(said, ask)
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        top: Json = {"object": "text_completion", "id": "", "created": CREATED_UNIX_S, "model": OWN_MODEL}
        answer = {**top, "system_fingerprint": "3.3.7-native", "choices": choices, "usage": usage}
        return page(answer, headers=TIMES)


class Generate(_Tgi):
    """``/generate``; ``streams`` makes it ``/generate_stream``."""

    streams = False

    def read(self, body: Json) -> Ask:
        values = as_object(body.get("parameters", {}))
        if not isinstance(body.get("inputs"), str) or values is None:
            raise wrong_type("inputs")
        if wrong := misfit(values, PARAMETERS):
            raise wrong_type(wrong)
        if (values.get("seed") or 0) < 0:
            raise wrong_type("seed")
        constraint = values.get("grammar")
        return Ask(
            "text",
            str(values.get("adapter_id") or ""),
            stream=self.streams,
            usage=bool(values.get("details")),
            max_tokens=values.get("max_new_tokens"),
            stop=words(values.get("stop")),
            logprobs=0,
            schema=None if constraint is None else grammar(constraint),
            turns=turns_of([{"role": "", "content": body["inputs"]}]),
            sampling=sampling_of(values),
        )

    def check(self, body: Json) -> None:
        check_sampling(body.get("parameters") or {}, greedy_by_zero=False)

    def frame(self, message: str, kind: str) -> list[Step]:
        return [sse({"error": message, "error_type": kind}), *_CLOSE]

    def piece(self, ask: Ask, said: Said, turn: Turn) -> list[Step]:
        ends = turn.last and said.finish == "length"
        return [self._token(ask, said, turn.at + 1, turn.output.text, special=False, last=ends)]

    def closing(self, ask: Ask, said: Said) -> list[Step]:
        if said.finish == "length":
            return list(_CLOSE)
        return [self._token(ask, said, len(said.outputs) + 1, END_TOKEN, special=True, last=True), *_CLOSE]

    def _token(self, ask: Ask, said: Said, index: int, text: str, *, special: bool, last: bool) -> Body:
        token = {"id": 2 if special else 15000 + index, "text": text, "logprob": -0.5, "special": special}
        made = {"generated_text": said.text if last else None, "details": self._details(ask, said) if last else None}
        return sse({"index": index, "token": token, **made})

    def _details(self, ask: Ask, said: Said) -> Json | None:
        if not ask.usage:
            return None
        reason = "length" if said.finish == "length" else "stop_sequence" if said.stopped_by else "eos_token"
        counts = {"generated_tokens": said.completion_tokens, "seed": None, "input_length": said.prompt_tokens}
        return {"finish_reason": reason, **counts}

    def whole(self, ask: Ask, said: Said) -> Script:
        details = self._details(ask, said)
        told: Json = {} if details is None else {"details": {**details, "prefill": [], "tokens": []}}
        return page({"generated_text": said.text, **told}, headers=TIMES)


class GenerateStream(Generate):
    streams = True


_CLOSE: tuple[Step, ...] = (wire(b"0\r\n\r\n"), eof())


def grammar(form: Json) -> Json:
    """Reads TGI's own constraint.

    Raises:
        Refused: It has some other shape, OpenAI's for one.
    """
    kind, value = form.get("type"), as_object(form.get("value"))
    if kind not in ("json", "json_object", "json_schema") or value is None:
        raise wrong_type("response_format")
    schema = as_object(value.get("schema")) if kind == "json_schema" else value
    if schema is None:
        raise wrong_type("response_format")
    if "properties" not in schema:
        raise Refused(error_page(422, "Invalid grammar: the schema has no properties", "validation"))
    return schema


class TgiDialect(Dialect):
    name = "tgi"
    parallel_calls = False
    text_logprobs = False
    streams_text_logprobs = False
    choices = False
    embeds = False

    def endpoints(self) -> Mapping[str, Voice]:
        return {
            "/v1/chat/completions": Chat(self.say, self.load),
            "/v1/completions": Text(self.say, self.load),
            "/generate": Generate(self.say, self.load),
            "/generate_stream": GenerateStream(self.say, self.load),
        }

    def pages(self) -> Mapping[str, Script]:
        info = {"model_id": OWN_MODEL, "model_sha": None, "max_concurrent_requests": 128, "max_best_of": 2}
        info |= {"max_stop_sequences": MOST_STOP_STRINGS, "max_total_tokens": self.load.context_tokens}
        info |= {
            "max_input_tokens": self.load.context_tokens - 1,
            "version": "3.3.7",
            "router": "text-generation-router",
        }
        model = {"id": OWN_MODEL, "object": "model", "created": 0, "owned_by": OWN_MODEL}
        return {
            "/": page(info),
            "/info": page(info),
            "/health": empty(),
            "/ping": empty(),
            "/v1/models": page({"object": "list", "data": [model]}),
            "/metrics": page(self._metrics(), content_type="text/plain; charset=utf-8"),
        }

    def _metrics(self) -> str:
        most = 16_000
        return (
            "# TYPE tgi_queue_size gauge\n"
            f"tgi_queue_size {self.load.waiting}\n\n"
            "# TYPE tgi_batch_current_size gauge\n"
            f"tgi_batch_current_size {self.load.running}\n\n"
            "# TYPE tgi_batch_current_max_tokens gauge\n"
            f"tgi_batch_current_max_tokens {round(most * self.load.kv_usage_ratio)}\n\n"
            "# TYPE tgi_batch_max_total_tokens gauge\n"
            f"tgi_batch_max_total_tokens {most}\n\n"
        )

    def lost(self, request: Request) -> Script:
        return empty(404)

    def unread(self, request: Request) -> Script:
        return plain(400, "Failed to parse the request body as JSON: expected value at line 1 column 1").script

    def turned_away(self, request: Request) -> Script | None:
        if request.method == "POST" and not (request.header("content-type") or b"").startswith(b"application/json"):
            return plain(415, "Expected request with `Content-Type: application/json`").script
        return None
