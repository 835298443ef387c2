"""Errors that are kept hold no frames: neither they nor those that they came of."""

from __future__ import annotations

from gateway.frames import let_go


def failed() -> ValueError:
    try:
        try:
            try:
                raise OSError("first")
            except OSError as first:
                raise KeyError("second") from first
        except KeyError:
            raise ValueError("third")  # noqa: B904 - what it came of is told by its context alone
    except ValueError as third:
        return third


def test_none_of_a_chain_keeps_its_frames() -> None:
    third = failed()
    second = third.__context__
    assert second is not None
    first = second.__cause__
    assert first is not None
    assert all(error.__traceback__ for error in (third, second, first))

    let_go(third)

    assert not any(error.__traceback__ for error in (third, second, first))
    assert (third.__context__, second.__cause__) == (second, first), "what it came of is still told"


def test_an_error_that_names_itself_as_its_cause_is_no_endless_chain() -> None:
    error = failed()
    error.__cause__ = error

    let_go(error)

    assert error.__traceback__ is None
