"""The monitor: queue to session and log, the target's end, findings."""

import itertools
import threading
from pathlib import Path

import pytest
from msgspec import structs

from tests.monitor.driving import HEADER, begun, steps, ticked_until
from tests.session.records import process
from tests.waiting import Clock, until
from tuimon.diagnosis.finding import Finding
from tuimon.launch.child import ExitStatus
from tuimon.monitor.monitor import Monitor
from tuimon.monitor.opening import sources_of
from tuimon.monitor.options import Options
from tuimon.records import Cost, Exit, Notice, Uncaught
from tuimon.sources.base import NoticeSource, Source
from tuimon.sources.log.output import OutputTail
from tuimon.sources.log.source import read_records
from tuimon.sources.log.writer import LogWriter
from tuimon.sources.process_table import ProcessTable


class Given(Source):
    """A source that hands out what it is given; the last batch only at the last read."""

    name = "given"
    period_s = 3600.0  # so that only the first and the last read take place

    def __init__(self, *batches):
        self.batches = list(batches)
        self.closed = False

    def read(self):
        return self.batches.pop(0) if self.batches else []

    def close(self):
        self.closed = True


class Process:
    """A process that ends when the test says so."""

    pid, run_id, ended = 7, None, None

    def poll(self):
        return self.ended


def test_records_reach_session_and_log(tmp_path):
    log = LogWriter(str(tmp_path / "x.jsonl"))
    source = Given([steps(1.0)])
    monitor = begun([source], header=HEADER, log=log, process=Process())
    ticked_until(monitor, lambda: monitor.session.over("recent").of(7).steps)
    assert monitor.session.header == HEADER
    assert list(read_records(log.path)) == [HEADER, steps(1.0)]  # flushed by the tick, before any stop
    assert not monitor.ended
    monitor.stop()
    monitor.stop()
    assert source.closed
    assert not any(isinstance(record, Exit) for record in read_records(log.path))


def test_a_source_for_which_there_is_no_thread_is_left_out_and_the_run_is_watched_to_its_end(monkeypatch):
    start = threading.Thread.start

    def start_others(thread):
        if thread.name == "tuimon-threadless":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_others)
    threadless, process = Given([steps(9.0)]), Process()
    threadless.name = "threadless"
    monitor = begun([threadless, Given([steps(1.0)])], process=process)
    ticked_until(monitor, lambda: monitor.session.over("recent").of(7).steps)
    notice = monitor.session.notices["threadless"]
    assert notice.level == "warning" and "no thread" in notice.message and "ulimit -v" in str(notice.hint)
    process.ended = ExitStatus(3, None)
    ticked_until(monitor, lambda: monitor.ended)
    assert monitor.exit_code == 3 and threadless.closed
    monitor.stop()


def test_the_last_read_comes_before_the_exit(tmp_path):
    log = LogWriter(str(tmp_path / "x.jsonl"))
    log.add_record(Notice(t=0.0, pid=0, source="log", level="info", message="first line"))
    process = Process()
    monitor = begun([Given([steps(1.0)], [steps(2.0)])], log=log, process=process)
    ticked_until(monitor, lambda: monitor.session.over("recent").of(7).steps)
    process.ended = ExitStatus(137, "SIGKILL")
    ticked_until(monitor, lambda: monitor.ended)
    assert monitor.exit_code == 137
    monitor.stop()
    lines = (tmp_path / "x.jsonl").read_bytes().splitlines()
    assert b'"t":2.0' in lines[-2]
    assert b'"exit_code":137,"signal":"SIGKILL"' in lines[-1]
    assert sum(b'"type":"exit"' in line for line in lines) == 1


#: Processes that a script began one after the other; on the wall clock, which is half a second behind.
BEGAN = [process(pid, t=1.0, start_unix_s=start_s) for pid, start_s in ((8, 0.5), (9, 8.6), (10, 8.7))]


@pytest.mark.parametrize(
    ("before", "raised", "code", "line"),
    [
        ([], [], 1, "KeyError: 1"),  # as it was printed
        ([], [(9.0, 7)], 1, "of 7"),  # the process itself
        ([], [(9.0, 8), (8.9, 9), (9.5, 7)], 1, "of 9"),  # the rank that failed first, not its launcher
        ([], [(9.0, 8)], None, None),  # attached: the process may have ended well
        ([], [(9.0, 8), (9.5, 7)], None, "of 8"),
        ([], [(-90.0, 8)], 1, "KeyError: 1"),  # the run went on
        ([], [(9.0, 7)], 0, None),
        (BEGAN, [(9.0, 8), (9.5, 9), (9.6, 10)], 1, "of 9"),  # the program that began after another had failed
        ([steps(1.0)], [(9.0, 8), (9.5, 7)], 1, "of 7"),  # a training that was launched ends by its own error
    ],
)
def test_the_exit_names_the_exception_that_ended_the_run(tmp_path, before, raised, code, line):
    out = tmp_path / "out"
    out.write_text("" if code is None else 'Traceback (most recent call last):\n  File "x"\nKeyError: 1\n')
    noted = [Uncaught(t=t, pid=pid, error=f"of {pid}", file="train.py", line=3, function="f") for t, pid in raised]
    target, output = Process(), OutputTail(str(out))
    monitor = begun([Given([*before, *noted])], header=HEADER, process=target, output=output, clock=lambda: 10.0)
    ticked_until(monitor, lambda: len(monitor.session.uncaught) == len(raised))
    target.ended = ExitStatus(code, None)
    ticked_until(monitor, lambda: monitor.ended)
    end = monitor.session.exit
    assert (end.last_line, end.has_failed) == (line, code == 1 or line is not None)
    assert (end.raised_at is not None) == (line or "").startswith("of")


def test_the_output_of_a_run_that_was_attached_to_is_left_whole(monkeypatch):
    tail = OutputTail("/nowhere")
    monkeypatch.setattr(tail, "trim", lambda: pytest.fail("not ours to cut"))
    Monitor([], process=Process(), output=tail).tick()


def test_an_iterator_makes_its_sources_when_the_monitor_begins():
    made = []

    def sources():
        made.append(Given([steps(1.0)]))
        yield made[0]

    monitor = Monitor(sources(), replay=True)
    monitor.tick()
    assert not made and not monitor.ended
    monitor.start()
    monitor.start()
    ticked_until(monitor, lambda: monitor.session.now_s == 1.0)
    monitor.stop()
    assert len(made) == 1 and made[0].closed


def test_what_the_queue_lost_is_told_with_the_cost():
    cost = Cost(t=1.0, pid=0, cpu_ratio=0.1, sampler_cpu_ratio=0.0, rss_bytes=1)
    monitor = Monitor([Given([cost])])
    monitor.pollers.pollers[0].dropped = 12
    monitor.start()
    ticked_until(monitor, lambda: monitor.session.cost)
    assert monitor.session.cost.queue_dropped == 12
    monitor.stop()


def test_rules_run_at_most_once_a_second(monkeypatch):
    judged = []
    monkeypatch.setattr("tuimon.diagnosis.verdicts.diagnose", lambda session, is_still: judged.append(1) or [])
    clock = Clock()
    monitor = Monitor([], clock=clock)
    for clock.now_s, times in ((10.0, 1), (10.2, 1), (10.9, 1), (11.0, 2)):
        monitor.records.put([steps(clock.now_s)])
        monitor.tick()
        assert len(judged) == times


def test_a_rule_that_fails_is_said_once_and_the_run_is_watched_on(monkeypatch):
    moments = iter([["before"], ZeroDivisionError("division by zero"), ZeroDivisionError("again"), ["after"]])

    def judged(judging, now_s):
        found = next(moments)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("tuimon.monitor.live_verdicts.LiveVerdicts.judge", judged)
    clock = Clock()
    monitor = Monitor([], clock=clock)
    for clock.now_s, findings in ((10.0, ["before"]), (11.0, ["before"]), (12.0, ["before"]), (13.0, ["after"])):
        monitor.records.put([steps(clock.now_s)])
        monitor.tick()
        assert monitor.findings == findings
    notice = monitor.session.notices["tuimon"]
    assert notice.message == "the verdict is not kept up to date: ZeroDivisionError: division by zero"


def test_a_disk_that_fills_is_said_once(monkeypatch, tmp_path):
    log = LogWriter(str(tmp_path / "x.jsonl"))

    def full(handle, data):
        raise OSError(28, "No space left on device")

    monitor = Monitor([], log=log, process=Process())
    monkeypatch.setattr("tuimon.sources.log.writer.os.write", full)
    for t in (1.0, 2.0, 3.0):
        monitor.records.put([steps(t)])
        monitor.tick()
    assert "No space left" in monitor.session.notices["log"].message
    monitor.stop()


def test_text_from_outside_is_safe_in_the_session_and_in_the_log(tmp_path):
    hostile = "gpu\x1b]52;c;ZXZpbA==\x07 gone\u202e\x9b1m"
    notice = Notice(t=1.0, pid=0, source="gpu", level="warning", message=hostile, hint=hostile)
    process = Process()
    log = LogWriter(str(tmp_path / "a.jsonl"))
    header = structs.replace(HEADER, command=["a\nb"], host=hostile)
    monitor = begun([Given([notice])], header=header, log=log, process=process)
    until(lambda: monitor.tick() or bool(monitor.session.notices))
    process.ended = ExitStatus(137, hostile)
    monitor.stop()
    session = monitor.session
    assert (session.header.command, session.header.host) == (["a b"], "gpu gone1m")
    assert (session.notices["gpu"].message, session.exit.signal) == ("gpu gone1m", "gpu gone1m")
    written = Path(log.path).read_text(encoding="utf-8")
    assert "gone" in written and not {"\x9b", "\u202e"} & set(written) and "u001b" not in written


def test_a_tuimon_that_was_stopped_records_for_how_long(tmp_path):
    clock = Clock()
    monitor = Monitor([], process=Process(), clock=clock)
    monitor.tick()
    clock.now_s = 106.9  # busy
    monitor.tick()
    assert not monitor.session.notices
    clock.now_s = 147.0
    monitor.tick()
    notice = monitor.session.notices["tuimon"]
    assert notice.t == 147.0 and "did not run for 40 s" in notice.message


def test_who_leaves_a_run_that_goes_on_is_given_the_verdict_on_all_that_was_watched(monkeypatch):
    process = Process()
    monitor = Monitor([Given([steps(1.0)])], process=process)
    for judge, rule in (("judge", "side_work"), ("judge_run", "input_bound")):
        found = [Finding(rule=rule, severity="warning", headline="")]
        monkeypatch.setattr(monitor.verdicts, judge, lambda *_, found=found: found)
    monitor.start()
    ticked_until(monitor, lambda: monitor.session.trainer() == 7)
    monitor.tick()
    assert [finding.rule for finding in monitor.findings] == ["side_work"]
    monitor.stop()
    assert process.poll() is None
    assert [finding.rule for finding in monitor.findings] == ["input_bound"]


# -- the Exit record is a log's last, however late the sources are


class Late(Given):
    """A source whose last read takes until the test lets it end."""

    name = "late"

    def __init__(self, *batches):
        super().__init__(*batches)
        self.reads, self.go = 0, threading.Event()

    def read(self):
        self.reads += 1
        if self.reads > 1:
            self.go.wait()
        return super().read()


def test_nothing_follows_the_exit_and_what_came_too_late_is_said(tmp_path):
    log, process, clock = LogWriter(str(tmp_path / "x.jsonl")), Process(), Clock()
    late = Late([steps(1.0)], [steps(2.0)])
    monitor = begun([late, Given()], header=HEADER, log=log, process=process, clock=clock)
    ticked_until(monitor, lambda: monitor.session.over("recent").of(7).steps)
    process.ended = ExitStatus(0, None)
    monitor.tick()
    assert not monitor.ended
    clock.now_s += 3.0
    ticked_until(monitor, lambda: monitor.ended)
    late.go.set()
    until(lambda: monitor.pollers.are_done)
    clock.now_s += 60.0  # tuimon was suspended
    monitor.tick()
    monitor.stop()
    *_, notice, last = read_records(log.path)
    assert "not finished 2 s after the run's end, so the last window may be missing: late" in notice.message
    assert isinstance(last, Exit)


def test_all_that_was_read_comes_before_the_exit(tmp_path):
    log, process, clock = LogWriter(str(tmp_path / "x.jsonl")), Process(), itertools.count(100.0, 0.01)
    records = [steps(1.0 + t / 100) for t in range(60)]
    monitor = begun([Given([], records)], header=HEADER, log=log, process=process, clock=lambda: next(clock))
    process.ended = ExitStatus(0, None)
    ticked_until(monitor, lambda: monitor.ended)
    monitor.stop()
    found = list(read_records(log.path))
    assert found[1:-1] == records and isinstance(found[-1], Exit)


# -- the sources of a live run


def test_what_is_switched_off_is_named_in_a_notice():
    sources = list(sources_of(ProcessTable(1, None), Options(markers=False, stacks=False, gpu=False)))
    (notices,) = (source for source in sources if isinstance(source, NoticeSource))
    assert [(notice.source, notice.message) for notice in notices.read()] == [
        ("markers", "markers are switched off (--no-markers)"),
        ("stacks", "stack samples are switched off (--no-stacks)"),
        ("gpu", "GPU counters are switched off (--no-gpu)"),
    ]
    for source in sources:
        source.close()
