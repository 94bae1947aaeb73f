"""The monitor that replays a log, or follows one that is still being written."""

from pathlib import Path

import pytest
from msgspec import structs

from tests.monitor.driving import HEADER, begun, steps, ticked_until
from tests.session import records
from tuimon.monitor.opening import open_log
from tuimon.recorded import read_log
from tuimon.records import Exit, StackCount, Stacks
from tuimon.sources.base import Done, Source
from tuimon.sources.log.writer import LogWriter

LOGS = Path(__file__).parents[1] / "data" / "logs"


@pytest.mark.parametrize("log", ["demo_slow_loader", "too_many_threads", "two_greedy_trainings"])
def test_a_replayed_run_that_has_ended_is_judged_as_a_whole_like_its_report(log):
    """At its last moment its processes have ended: threads that crowded the cores are no more."""
    path = str(LOGS / f"{log}.jsonl.gz")
    monitor = open_log(path)
    monitor.start()
    ticked_until(monitor, lambda: monitor.ended and monitor.records.empty() and not monitor.tick())
    reported = read_log(path).findings
    assert [(found.rule, found.action) for found in monitor.findings] == [(each.rule, each.action) for each in reported]
    monitor.stop()


def test_a_replayed_run_that_was_killed_in_a_hang_says_so(tmp_path):
    """At its end there are no processes any more; that it hung is known from the moments before."""
    log = LogWriter(str(tmp_path / "x.jsonl"))
    stands = StackCount(100, "MainThread", [0], 10)
    in_the_hang = []
    for t in range(9, 41):
        in_the_hang.append(records.thread(t, 0.0, state="waiting"))
        in_the_hang.append(records.steps(t, {}, count=0, first_index=90, open_phase="backward", open_for_s=t - 8.0))
        in_the_hang.append(Stacks(t=t + 0.0, pid=100, window_s=1.0, samples=10, stacks=[stands]))
    for record in (
        records.header(),
        records.process(),
        records.frames(("train.py", 9, "gather")),
        *(records.steps(t, {"forward": 50, "backward": 50}, first_index=10 * t) for t in range(1, 9)),
        *in_the_hang,
        Exit(t=41.0, pid=100, exit_code=137, signal="SIGKILL"),
    ):
        log.add_record(record)
    log.flush(0.0)
    log.close()
    monitor = open_log(log.path)
    monitor.start()
    ticked_until(monitor, lambda: monitor.ended and monitor.records.empty() and not monitor.tick())
    assert [found.rule for found in monitor.findings] == ["hang"]
    monitor.stop()


def test_a_replay_longer_than_the_queue_loses_nothing(monkeypatch):
    class Long(Source):
        name = "log"
        period_s = 0.0

        def read(self):
            yield from (steps(float(t)) for t in range(3000))
            raise Done

    monkeypatch.setattr("tuimon.monitor.monitor.QUEUE_LIMIT", 10)
    monitor = begun([Long()], replay=True)
    seen = []
    monkeypatch.setattr(monitor.session, "add", seen.append)
    ticked_until(monitor, lambda: monitor.ended and monitor.records.empty())
    assert len(seen) == 3000
    assert monitor.dropped == 0
    monitor.stop()


def test_a_log_is_followed_until_it_ends_or_is_no_longer_written(tmp_path):
    log = LogWriter(str(tmp_path / "x.jsonl"))
    header = structs.replace(HEADER, t=50.0, wall_unix_s=1000.0)
    for record in (header, steps(110.0)):
        log.add_record(record)
    log.flush(0.0)
    monitor = open_log(log.path)
    assert monitor.read_ratio is not None
    monitor.start()
    ticked_until(monitor, lambda: monitor.session.now_s == 110.0 and monitor.read_ratio is None)
    assert monitor.is_followed(1061.0)
    assert monitor.is_followed(1076.0)
    assert not monitor.is_followed(1078.0)
    log.add_record(Exit(t=111.0, pid=7, exit_code=0))
    log.flush(1.0)
    log.close()
    ticked_until(monitor, lambda: monitor.ended)
    assert not monitor.is_followed(1061.0)
    monitor.stop()
