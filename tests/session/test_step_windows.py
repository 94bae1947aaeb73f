"""The latest windows of steps, which are packed."""

from tests.session.records import MS, steps
from tuimon.records import PhaseTime, RangeTime, SlowStep
from tuimon.session.steps.step_windows import RecentSteps
from tuimon.session.steps.totals import Totals

PHASES = {"data": 1.0, "forward": 2.0, "other": 0.5}


def test_sums_of_packed_windows_are_those_of_the_records():
    slowest = SlowStep(7, 9 * MS, [PhaseTime("data", 4 * MS), PhaseTime("other", 5 * MS)])
    more = {"ranges": [RangeTime("epoch/batch", 10, 30 * MS, "forward")], "gc_ns": 3, "gc_count": 2, "gc_longest_ns": 2}
    first = steps(1.0, PHASES, slowest_ms=9.0, timed=8, slowed=1, slowed_ns=5, eval_count=3, **more)
    records = [first, steps(2.0, PHASES, count=0), steps(3.0, PHASES, first_index=10)]
    records[0] = type(first)(**{name: getattr(first, name) for name in first.__struct_fields__} | {"slowest": slowest})
    recent, whole, packed = RecentSteps(), Totals(), Totals()
    for record in records:
        recent.append(record)
        whole.add_window(record)
    for record in recent.records():
        packed.add_window(record)
    assert list(whole.slowest) == list(packed.slowest) == [(9 * MS, 5 * MS), (int(3.5 * MS), 0)]
    whole.slowest = packed.slowest
    assert whole == packed


def test_windows_of_more_than_30_s_ago_go_but_for_three_with_a_step():
    recent = RecentSteps()
    for at in range(6):
        recent.append(steps(20.0 * at, PHASES, count=int(at != 3), first_index=at))
    assert [record.t for record in recent.records()] == [40.0, 80.0, 100.0]


def test_what_a_damaged_log_says_is_packed_too():
    recent = RecentSteps()
    huge = SlowStep(0, 1 << 62, [PhaseTime("other", 1 << 62)] * 8)
    record = steps(1.0, PHASES)
    recent.append(type(record)(**{n: getattr(record, n) for n in record.__struct_fields__} | {"slowest": huge}))
    (found,) = recent.records()
    assert found.slowest is not None and found.slowest.total_ns == 1 << 62
