"""How fast an endpoint takes prompts in and gives tokens out, learnt from its answers: pure steps in constant memory.

A prompt's first output is taken for ``base_s`` plus a time for each token that the cache does not hold, its own and
those queued before it. Endpoints that were idle tell ``base_s``: where a line through tokens and times begins. Then
all work done lately, by its tokens, is the time a token; of a busy endpoint it began with the first output before.

The pace of answers is known for the load that it was seen at, and taken to grow with the tokens held. A slope fitted
to it would drive itself: endpoints thought slow empty, the others fill, and both confirm it.
"""

from __future__ import annotations

from typing import NamedTuple

from .named_tuples import named
from .types import Answered, EndpointSnapshot, FirstOutput, RouteQuery

REQUEST_TOKENS = 300.0  # a request slows every step of its engine as much as this many tokens held
MOST_PROGRESS = 0.9  # of the oldest prompt: it is not done before it has answered
KNEE_TOKENS = 40_000.0  # tokens held at which the gap is twice that of an idle engine
_WORK_KEPT = 0.96  # of the work done, per first output
_IDLE_KEPT = 0.98  # of what idle endpoints told, likewise
_OUTPUTS_KEPT = 0.997  # of the answers' tokens and times, per answer: between like endpoints a difference is chance
_LEAST_GAIN = 0.005  # of the slow means
_FEW_TOKENS = 256.0  # shorter prompts weigh alike: what takes their time is not their tokens
_LEAST_TOKENS = 16.0  # a prompt that is all cached still is some work
_SHRINK = 1.02  # prompts of one length do not tell base from tokens: then it is the tokens
_FAR = 2.0  # times as late as expected: later is a prompt that was not cached after all, or another's queue
_SETTLED = 5  # first outputs before anything can be called late
_LEAST_TOKEN_S = 1e-6


class PrefillSums(NamedTuple):
    """What the time to the first output is learnt from; older samples count less and less.

    Attributes:
        idle: Sum of weights over first outputs of an idle endpoint, ...
        idle_tokens: ... of weight x tokens, ...
        idle_time_s: ... of weight x time, ...
        idle_squares: ... of weight x tokens x tokens ...
        idle_product_s: ... and of weight x tokens x time.
        work_tokens: Of all first outputs: their tokens ...
        work_s: ... and the time they took, ``base_s`` aside.
    """

    idle: float = 0.0
    idle_tokens: float = 0.0
    idle_time_s: float = 0.0
    idle_squares: float = 0.0
    idle_product_s: float = 0.0
    work_tokens: float = 0.0
    work_s: float = 0.0


class DecodeSums(NamedTuple):
    """What the pace is learnt from, likewise.

    Attributes:
        tokens: Of all answers, after the first ...
        time_s: ... and the time they took.
    """

    tokens: float = 0.0
    time_s: float = 0.0


class EngineSpeed(NamedTuple):
    """What is known of one endpoint's speed.

    Attributes:
        base_s: To the first output, when no token is to be read and nothing is ahead.
        token_s: Time an uncached prompt token; 0 before the first output.
        last_first_s: When the latest first output came, monotonic.
        pace_s: Time an output token after the first, for each token held, the knee's included.
        output_tokens: Of an answer, on average.
        gap_s: Time an output token after the first: that of all answers lately, by all their tokens, ...
        load_tokens: ... at this load: tokens held, each request counted as ``REQUEST_TOKENS``.
        firsts: First outputs learnt from.
        answers: Answers learnt from.
        prefill: Behind ``base_s`` and ``token_s``.
        decode: Behind ``gap_s``.
    """

    base_s: float = 0.0
    token_s: float = 0.0
    last_first_s: float = 0.0
    pace_s: float = 0.0
    output_tokens: float = 0.0
    gap_s: float = 0.0
    load_tokens: float = 0.0
    firsts: int = 0
    answers: int = 0
    prefill: PrefillSums = PrefillSums()
    decode: DecodeSums = DecodeSums()


NOTHING_LEARNT = EngineSpeed()


def after_first_output(known: EngineSpeed | None, sample: FirstOutput) -> EngineSpeed:
    """Returns what is known after one more first output."""
    base_s, token_s, last_first_s, _, output_tokens, gap_s, load_tokens, firsts, answers, prefill, decode = (
        known or NOTHING_LEARNT
    )
    idle, idle_tokens, idle_time_s, idle_squares, idle_product_s, work_tokens, work_s = prefill
    sent_s, at_s, _, uncached_tokens, ahead, _, all_held_tokens, in_flight = sample
    tokens = max(float(uncached_tokens), _LEAST_TOKENS)
    if ahead == 0:
        time_s = at_s - sent_s
        if firsts >= _SETTLED:
            time_s = min(time_s, _FAR * (base_s + tokens * token_s))
        weight = 1.0 / (tokens + _FEW_TOKENS)
        idle = _IDLE_KEPT * idle + weight
        idle_tokens = _IDLE_KEPT * idle_tokens + weight * tokens
        idle_time_s = _IDLE_KEPT * idle_time_s + weight * time_s
        idle_squares = _IDLE_KEPT * idle_squares + weight * tokens * tokens
        idle_product_s = _IDLE_KEPT * idle_product_s + weight * tokens * time_s
        spread = _SHRINK * idle * idle_squares - idle_tokens * idle_tokens
        base_s = max(0.0, (idle_time_s * idle_squares - idle_tokens * idle_product_s) / spread)
    work_tokens = _WORK_KEPT * work_tokens + tokens
    work_s = _WORK_KEPT * work_s + at_s - max(last_first_s, sent_s + base_s)
    firsts += 1
    held_tokens = all_held_tokens + REQUEST_TOKENS * in_flight
    load_tokens += max(_LEAST_GAIN, 1.0 / firsts) * (held_tokens - load_tokens)
    sums = (idle, idle_tokens, idle_time_s, idle_squares, idle_product_s, work_tokens, work_s)
    speed = (
        base_s,
        max(_LEAST_TOKEN_S, work_s / work_tokens),
        at_s,
        gap_s / (load_tokens + KNEE_TOKENS),
        output_tokens,
        gap_s,
        load_tokens,
        firsts,
        answers,
        named(PrefillSums, sums),
        decode,
    )
    return named(EngineSpeed, speed)


def after_answer(known: EngineSpeed | None, sample: Answered) -> EngineSpeed:
    """Returns what is known after one more whole answer."""
    base_s, token_s, last_first_s, _, output_tokens, gap_s, load_tokens, firsts, answers, prefill, decode = (
        known or NOTHING_LEARNT
    )
    answers += 1
    counted_tokens, gap_told_s = sample.output_tokens, sample.token_s
    if gap_told_s is not None:
        # An answer of two tokens tells less of the pace than one of two hundred, and mostly of another's prompt.
        tokens, time_s = decode
        tokens = _OUTPUTS_KEPT * tokens + counted_tokens - 1
        time_s = _OUTPUTS_KEPT * time_s + (counted_tokens - 1) * gap_told_s
        gap_s, decode = time_s / tokens, named(DecodeSums, (tokens, time_s))
    output_tokens += max(_LEAST_GAIN, 1.0 / answers) * (counted_tokens - output_tokens)
    pace_s = gap_s / (load_tokens + KNEE_TOKENS)
    speed = (base_s, token_s, last_first_s, pace_s, output_tokens, gap_s, load_tokens, firsts, answers, prefill, decode)
    return named(EngineSpeed, speed)


def first_output_s(known: EngineSpeed, endpoint: EndpointSnapshot, query: RouteQuery, now_s: float) -> float:
    """Returns how long the first output of a request would take at an endpoint whose first outputs told of its speed.

    What ``routing.latency`` reckons in its loop, for who asks about one endpoint at a time.
    """
    tokens = endpoint.pending_tokens + query.prompt_tokens - query.cached_tokens.get(endpoint.endpoint_id, 0)
    ttft_s = known.base_s + tokens * known.token_s + endpoint.load_penalty_s
    if endpoint.oldest_s is not None:
        spent_s = now_s - max(known.last_first_s, endpoint.oldest_s + known.base_s)
        ttft_s -= min(max(spent_s, 0.0), MOST_PROGRESS * endpoint.oldest_tokens * known.token_s)
    slots, in_flight = endpoint.slots, endpoint.in_flight
    if slots is not None and in_flight >= slots:
        held_tokens = endpoint.held_tokens + query.prompt_tokens + REQUEST_TOKENS * in_flight + KNEE_TOKENS
        ttft_s += (in_flight + 1 - slots) * known.output_tokens * known.pace_s * held_tokens / slots
    return ttft_s
