"""Hangs on literal sessions."""

import pytest

from tests.session.records import frames, header, process, stacks, steps, threads
from tuimon.diagnosis import diagnose
from tuimon.records import StackCount, Stacks
from tuimon.session.session import Session

PLACE = frames(("train.py", 9, "gather", "dist.barrier()", True))
IDLE = {"cpu_ratio": 0.0}


def standing(open_for_s, cpu_ratio=0.0, exit_record=None, longest_ms=100.0, place=PLACE, stacks_seen=1):
    session = Session()
    records = [header(), process(), place]
    records += [steps(t, {"forward": 50, "backward": longest_ms - 50}, first_index=10 * t) for t in range(1, 9)]
    end = 9.0 + open_for_s
    records.append(steps(end, {}, count=0, first_index=90, open_phase="backward", open_for_s=open_for_s))
    records.append(threads(end, (100, "python", cpu_ratio, "waiting"), cpu_ratio=cpu_ratio))
    each = 20 // stacks_seen
    records += [stacks(t, *(([n], each) for n in range(stacks_seen))) for t in range(9, int(end) + 1)]
    for record in records + ([exit_record] if exit_record else []):
        session.add(record)
    return diagnose(session)


def test_a_step_without_end_or_cpu_hangs_and_nothing_else_counts():
    (only,) = standing(120.0)
    assert (only.rule, only.severity, only.where[0].line) == ("hang", "critical", 9)
    assert only.headline == (
        "nothing has moved for 120 s in backward: gather() train.py:9; the longest step before took 0.1 s"
    )


@pytest.mark.parametrize("more", [{"cpu_ratio": 0.9}, {"longest_ms": 60_000.0}])
def test_a_long_step_that_computes_or_is_no_surprise_does_not_hang(more):
    assert "hang" not in {finding.rule for finding in standing(120.0, **more)}


def test_a_thread_that_stands_as_well_is_named():
    two = frames(("train.py", 9, "main", "with b:", True), ("train.py", 20, "other", "with a:", True))
    session = Session()
    records = [header(), process(), two]
    records += [steps(t, {"between": 50, "backward": 50}, first_index=10 * t) for t in range(1, 9)]
    records.append(steps(20, {}, count=0, first_index=90, open_phase="between", open_for_s=12.0))
    records.append(threads(20, (100, "python", 0.0, "waiting"), cpu_ratio=0.0))
    main, other = StackCount(100, "MainThread", [0], 20), StackCount(101, "Thread-1", [1], 20)
    records.append(Stacks(t=19.5, pid=100, window_s=2.0, rate_hz=10.0, samples=20, stacks=[main, other]))
    for record in records:
        session.add(record)
    (only,) = diagnose(session)
    assert only.headline.startswith(
        "nothing has moved for 12 s: main() train.py:9, and a thread at other() train.py:20;"
    )
    assert [place.line for place in only.where] == [9, 20]


def test_it_is_said_after_ten_seconds_and_not_before():
    assert "hang" in {finding.rule for finding in standing(11.0)}
    assert "hang" not in {finding.rule for finding in standing(9.0)}


@pytest.mark.parametrize(
    "waiting",
    [
        frames(("train.py", 9, "save", "torch.save(model, path)", True)),
        frames(("train.py", 9, "pause", "time.sleep(60)", True)),
        frames(("train.py", 9, "ask", "if input('go on?') == 'y':", True)),
        frames(("/usr/lib/python3.11/cmd.py", 126, "cmdloop")),
    ],
)
def test_files_sleeps_and_prompts_are_given_a_minute(waiting):
    assert "hang" not in {finding.rule for finding in standing(30.0, place=waiting)}
    assert "hang" in {finding.rule for finding in standing(70.0, place=waiting)}


def test_a_stack_that_changes_is_no_standstill():
    polling = frames(("q.py", 5, "poll", "ready()", True), ("q.py", 6, "poll", "flag.check()", True))
    assert "hang" not in {finding.rule for finding in standing(30.0, place=polling, stacks_seen=2)}
