"""Side work that comes every so many steps, found in the lengths of steps."""

from __future__ import annotations

import pytest

from tests.session.records import totals_of
from tuimon.diagnosis.evidence.steps import bursts
from tuimon.records import PhaseTime, SlowStep, Steps, length_bucket

MS = 1_000_000


def window(steps: int, longer: dict[float, int], *, own: float = 10.0, other: float = 0.5, phase: str = "other"):
    """Steps of ``own`` ms with ``other`` ms of side work; of some (ms: how many) a phase takes that much longer."""
    lengths = {own: steps - sum(longer.values()), **{own + ms: n for ms, n in longer.items()}}
    total = sum(ms * n for ms, n in lengths.items())
    more = sum(ms * n for ms, n in longer.items())
    slowest = max(lengths)
    phases = {"forward": own * steps - other * steps, "other": other * steps}
    phases[phase] += more
    slow = {"forward": own - other, "other": other}
    slow[phase] += slowest - own
    return Steps(
        t=1.0,
        pid=1,
        window_s=1.0,
        count=steps,
        first_index=0,
        total_ns=round(total * MS),
        histogram=sorted((length_bucket(round(ms * MS)), n) for ms, n in lengths.items() if n),
        phases=[PhaseTime(name, round(ms * MS)) for name, ms in phases.items()],
        slowest=SlowStep(0, round(slowest * MS), [PhaseTime(name, round(ms * MS)) for name, ms in slow.items()]),
    )


def test_work_every_twenty_steps() -> None:
    found = bursts(totals_of(*[window(20, {200.0: 1})] * 5, window(20, {})))
    assert found is not None
    assert (found.ms, found.every) == (pytest.approx(200.5), pytest.approx(120 / 5))


def test_work_in_each_step_comes_in_no_bursts() -> None:
    assert bursts(totals_of(window(100, {}, other=5.0))) is None
    assert bursts(totals_of(window(100, {2.0: 10}, other=5.0))) is None


def test_one_long_checkpoint_does_not_hide_the_bursts_of_most_of_the_work() -> None:
    found = bursts(totals_of(*[window(100, {100.0: 10})] * 9, window(100, {100.0: 9, 900.0: 1})))
    assert found is not None
    assert found.every == pytest.approx(10)


def test_steps_that_are_slow_for_something_else_are_no_bursts_of_side_work() -> None:
    assert bursts(totals_of(*[window(20, {200.0: 1}, phase="forward")] * 5)) is None
