"""What of ours is open at an endpoint: every way out gives back what it took, and a policy learns of each answer."""

from __future__ import annotations

import pytest

from adapters.types import Unsupported
from gateway.config import EndpointConfig, PoolConfig
from gateway.endpoint import Endpoint
from gateway.own_load import OwnLoad
from policies.types import Answered, FirstOutput
from policies.wedge import Slowest


class _Counting:
    """Learns how many answers there were, and keeps the last sample."""

    def first_output(self, known: tuple[int, FirstOutput] | None, sample: FirstOutput) -> tuple[int, FirstOutput]:
        return (1 if known is None else known[0] + 1), sample

    def answered(self, known: object, sample: Answered) -> object:
        return known


def test_a_lease_gives_back_what_it_took_however_it_ends() -> None:
    own = OwnLoad()
    with own.lease(100, 40, 1.0) as early:
        assert (own.in_flight, own.held_tokens, len(own.pending), own.pending_tokens) == (1, 100, 1, 40)
        early.first_output(1.0, 1.5)
        assert (own.in_flight, own.held_tokens, len(own.pending), own.pending_tokens) == (1, 100, 0, 0)
    with pytest.raises(RuntimeError), own.lease(100, 40, 1.0):
        raise RuntimeError
    assert (own.in_flight, own.held_tokens, len(own.pending), own.pending_tokens) == (0, 0, 0, 0)


def test_a_first_output_tells_what_was_ahead_of_it() -> None:
    own = OwnLoad(_Counting())
    with own.lease(100, 60, 1.0) as first, own.lease(50, 50, 2.0) as second:
        first.first_output(1.0, 3.0)
        second.first_output(2.0, 3.5)
        assert own.learnt == (2, FirstOutput(2.0, 3.5, 50, 50, 1, 60, 100, 2))
    assert own.ttft_s == pytest.approx(2.0 + 0.2 * (1.5 - 2.0))
    assert own.answers == 2


def test_a_snapshot_is_the_same_until_something_changes() -> None:
    pool = PoolConfig.model_validate({"name": "m", "endpoints": ["http://127.0.0.1:9"]})
    config = EndpointConfig.model_validate({"url": "http://127.0.0.1:9", "weight": 2, "id": "e"})
    endpoint = Endpoint(config, pool)
    idle = endpoint.snapshot()
    assert endpoint.snapshot() is idle
    with endpoint.own.lease(100, 40, 7.0) as lease:
        busy = endpoint.snapshot()
        assert (busy.in_flight, busy.pending_tokens, busy.oldest_s, busy.oldest_tokens) == (1, 40, 7.0, 40)
    lease.served(None)
    assert endpoint.snapshot() == idle._replace(answers=1)
    assert idle.weight == 2


class _Outputs:
    def __init__(self, output_s: float | None) -> None:
        self.output_s = output_s
        self.awaits_first_s = 1.0 if output_s is None else None

    def give_up(self) -> None:
        raise AssertionError("nobody hangs")


def test_what_ends_leaves_behind_when_it_last_gave_output() -> None:
    own = OwnLoad()
    with own.lease(100, 40, 1.0) as silent:
        silent.outputs = _Outputs(None)
        assert own.open == {silent}
    assert own.output_s is None
    with own.lease(100, 40, 1.0) as early, own.lease(100, 40, 1.0) as late:
        early.outputs, late.outputs = _Outputs(5.0), _Outputs(9.0)
    assert own.output_s == 9.0
    assert own.open == set()
    assert late.outputs is None, "nothing holds a stream that is over"


def test_a_first_output_and_a_whole_answer_are_output() -> None:
    own = OwnLoad()
    with own.lease(100, 40, 1.0) as lease:
        lease.first_output(1.0, 3.0)
        assert own.output_s == 3.0
        assert own.slowest == Slowest(2.0, 40.0)
    lease.served(Answered(1.0, 8.0, 3.0, None, None, 5, None))
    assert own.output_s == 8.0


def test_an_endpoint_that_comes_to_life_again_has_answered_nothing_yet() -> None:
    own = OwnLoad()
    with own.lease(100, 40, 1.0) as lease:
        lease.first_output(1.0, 3.0)
    own.revived()
    assert own.answers == 0


def test_a_whole_answer_that_shows_no_first_output_is_an_answer_too() -> None:
    own = OwnLoad()
    with own.lease(100, 40, 1.0) as whole:
        pass
    whole.served(None)
    with own.lease(100, 40, 1.0) as stream:
        stream.first_output(1.0, 3.0)
    stream.served(None)
    assert own.answers == 2


def test_attempts_without_an_answer_are_counted_until_there_is_one() -> None:
    own = OwnLoad()

    def fail() -> None:
        with own.lease(100, 40, 1.0):
            pass

    fail()
    fail()
    assert own.fruitless == 2
    with own.lease(100, 40, 1.0) as lease:
        lease.first_output(1.0, 3.0)
    assert own.fruitless == 0
    fail()
    with own.lease(0, 0, 1.0) as other:
        pass
    other.served(None)
    assert own.fruitless == 0
    fail()
    own.revived()
    assert own.fruitless == 0


def test_a_request_that_its_engine_was_not_asked_for_is_no_attempt_without_an_answer() -> None:
    own = OwnLoad()
    with pytest.raises(Unsupported), own.lease(100, 40, 1.0):
        raise Unsupported("not with tools", "response_format")
    assert (own.fruitless, own.in_flight, own.pending_tokens, own.held_tokens) == (0, 0, 0, 0)
