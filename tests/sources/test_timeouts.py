"""Calls that may hang."""

import threading

import pytest

from tests.waiting import until
from tuimon.sources.timeouts import CallWithTimeout


def test_answers_and_errors_come_back() -> None:
    calls: CallWithTimeout[int] = CallWithTimeout("test")
    assert calls.call(lambda: 7, 60) == 7
    with pytest.raises(ValueError, match="seven"):
        calls.call(lambda: int("seven"), 60)
    assert calls.call(lambda: 8, 60) == 8
    assert not calls.pending


def test_a_call_that_hangs_is_waited_for_and_nothing_else_is_done_meanwhile() -> None:
    calls: CallWithTimeout[int] = CallWithTimeout("test")
    goes_on = threading.Event()
    asked: list[int] = []

    def hang() -> int:
        goes_on.wait(60)
        return 1

    assert calls.call(hang, 0) is None
    assert calls.pending
    assert calls.call(lambda: asked.append(2) or 2, 0) is None
    goes_on.set()
    assert until(lambda: calls.call(lambda: 3, 0)) == 1
    assert calls.call(lambda: 4, 60) == 4
    assert not asked
