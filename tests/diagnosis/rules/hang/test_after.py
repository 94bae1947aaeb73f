"""A program that stays after its training, and those that may."""

import pytest

from tests.diagnosis.rules.hang.test_hang_over import ANSWERS, BATCH, EXITS, LOCK, SERVES, SLEEPS, WAITS, standing
from tests.session.records import extend, frames, process, stacks, still, thread
from tuimon.diagnosis.judging import diagnose
from tuimon.diagnosis.rules.hang import IDLE_S, LONG_IDLE_S
from tuimon.monitor.live_verdicts import suspicion
from tuimon.records import Exit, Gpu, GpuProcess, Standstill

TAKEN_S = 29.0  # when ``standing`` has the stacks taken, and from when the training is idle


def idle(place, idle_s, *, cpu=0.0, util=None, moved_s=None, child=0.0, **of_process):
    """The session of a run that has been idle at ``place`` for so long since its stacks were taken."""
    of_process.setdefault("has_left", True)
    session, now = standing(place, 20.0, **of_process), TAKEN_S + idle_s
    if moved_s is not None:
        session.add(Standstill(t=TAKEN_S + moved_s, pid=0, quiet_s=20.0 + moved_s, moving=[100]))
    on_it = {"processes": [GpuProcess(100, 12 << 30)], "pids": [100]}
    gpu = Gpu(t=now, pid=0, index=0, uuid="GPU-0", name="H100", util_ratio=util, **on_it)
    other = process(pid=200, role="other", ppid=100), thread(now, child, pid=200, state="waiting")
    opened = still(now, now - 9.0, first_index=80), thread(now, cpu, state="waiting")
    return extend(session, opened, other, [] if util is None else gpu)


def found(place, idle_s, **more):
    return [each for each in diagnose(idle(place, idle_s, **more), is_still=True) if each.rule == "not_ended"]


def test_one_that_sleeps_or_waits_for_its_thread_is_told_with_its_line():
    (sleeps,) = found(SLEEPS, 300.0)
    assert sleeps.headline == "the training ended 5m20s ago, and the process sleeps"
    assert (sleeps.severity, sleeps.where[0].line, sleeps.where[0].function) == ("info", 9, "main")
    (waits,) = found(WAITS, 300.0)
    assert waits.headline.endswith("waits for a thread of its own") and "daemon" in waits.action
    assert not found(SLEEPS, IDLE_S - 1)


def test_at_the_exit_the_threads_of_which_one_keeps_it_alive_are_named():
    session = idle(EXITS, 300.0)
    beat = ("train.py", 30, "heartbeat", "time.sleep(1)", True)
    prefetch = ("train.py", 35, "prefetch", "queue.get()", True)
    beside = [(108 + n, "T", [11 + n], 20) for n in (0, 1)]
    extend(session, frames(*EXITS, beat, prefetch, first=10, t=330.0), stacks(330.0, ([10], 20), beside=beside))
    (waits,) = (each for each in diagnose(session, is_still=True) if each.rule == "not_ended")
    assert waits.headline.endswith("waits for a thread of its own")
    assert [(each.function, each.line) for each in waits.where] == [("heartbeat", 30), ("prefetch", 35)]


def test_it_is_a_warning_once_it_has_held_a_gpu_for_long():
    (lately,) = found(SLEEPS, LONG_IDLE_S - 1, util=0.0)
    (long,) = found(SLEEPS, LONG_IDLE_S + 1, util=0.0)
    assert (lately.severity, long.severity) == ("info", "warning")
    assert long.headline == "the training ended 10m21s ago, and the process sleeps and holds 12 GiB of GPU memory"
    assert [each.severity for each in found(SLEEPS, LONG_IDLE_S + 1)] == ["info"]


@pytest.mark.parametrize(
    "healthy",
    [
        {"place": SERVES},
        {"place": ANSWERS},
        {"place": SLEEPS, "listens": True},
        {"place": SLEEPS, "has_left": False},
        {"place": BATCH},
        {"place": LOCK},
        {"place": SLEEPS, "cpu": 0.3},
        {"place": SLEEPS, "child": 0.3},
        {"place": SLEEPS, "util": 0.4},
        {"place": SLEEPS, "moved_s": 295.0},
        {"place": SLEEPS, "in_thread": True},
    ],
    ids=str,
)
def test_a_server_and_one_that_evaluates_saves_or_computes_are_wanted(healthy):
    assert not found(idle_s=300.0, **healthy)


def test_after_an_upload_it_counts_from_its_end():
    assert not found(SLEEPS, 300.0, moved_s=200.0)
    (late,) = found(SLEEPS, 400.0, moved_s=200.0)
    assert late.evidence["idle_for_s"] == 200.0


def test_files_are_watched_as_long_as_it_stays():
    assert suspicion(idle(SLEEPS, 300.0)) is not None
    assert suspicion(idle(SLEEPS, 300.0, listens=True)) is None


def test_nothing_is_told_of_one_that_has_ended():
    session = idle(SLEEPS, 300.0)
    session.add(Exit(t=400.0, pid=100, exit_code=0))
    assert not [each for each in diagnose(session, is_still=True) if each.rule == "not_ended"]
