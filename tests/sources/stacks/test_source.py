"""StackSource: real py-spy on real Python processes."""

import os
import signal
import stat
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.sources.programs import running
from tests.sources.stacks.sampling import SourceReader, fake_pyspy, pyspies, reading, trainer
from tests.state_size import size_of
from tests.waiting import Clock, until
from tuimon.installation import install_command
from tuimon.proc.ring_facts import RawFrame
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks import failures, pyspy
from tuimon.sources.stacks.source import GilSampler, StackSource, WindowRecords, is_idle_worker
from tuimon.sources.stacks.speedscope import SampledThread, WindowSamples

if pyspy.find() is None:
    pytest.skip("py-spy is not installed", allow_module_level=True)

SLEEP = "import time; print('up', flush=True); time.sleep(1000)"


def test_a_window_that_waits_for_its_turn_when_the_source_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its py-spy is reaped and its files are closed: their numbers may be somebody else's by now."""
    table = ProcessTable(os.getpid(), None)
    source = StackSource(table, binary=lambda: None)
    binary = pyspy.find()
    assert binary is not None
    with running(tmp_path, SLEEP) as process:
        first, second = (pyspy.PySpyRecording.start(binary, process.pid, 10, 60.0) for _ in range(2))
        os.kill(second.child, signal.SIGKILL)
        later = SimpleNamespace(recording=second, ended=None)
        monkeypatch.setattr(source, "ending", {process.pid: SimpleNamespace(recording=first, ended=None)})
        monkeypatch.setattr(source, "running", {process.pid: later})

        def has_ended() -> bool:
            assert source.ended_windows(time.monotonic()) == []
            return later.ended is not None

        until(has_ended, "the end of the second window")
        source.close()
        assert pyspies() == []


def test_a_pyspy_that_is_missing_is_looked_for_again(tmp_path: Path) -> None:
    binary: list[str | None] = [None]
    clock = Clock(1000.0)
    with (
        running(tmp_path, SLEEP) as process,
        reading(ProcessTable(process.pid, None), clock=clock, binary=lambda: binary[0]) as reader,
    ):
        reader.until(lambda _: True, "a read")
        (notice,) = reader.notices
        assert (notice.source, notice.level) == ("stacks", "warning")
        assert "py-spy was not found" in notice.message
        assert notice.hint and install_command("py-spy") in notice.hint
        binary[0] = pyspy.find()
        reader.until(lambda _: True, "a read")
        assert len(reader.notices) == 1  # said once, and not tried at every read
        clock.now_s += 31
        reader.until(lambda _: True, "a read")
        assert [notice.level for notice in reader.notices] == ["warning", "ok"]
        assert pyspies()


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("echo 'Error: Permission Denied: Try running again with sudo' >&2; exit 1", "ptrace"),
        ("echo 'Error: Unsupported version of Python: 3.99.0' >&2; exit 1", "Python 3.99.0"),
        ("exit 1", "py-spy gave no reason"),
        ("echo '{' >/proc/self/fd/3", "wrote not a speedscope file"),
    ],
)
def test_a_pyspy_that_fails(tmp_path: Path, script: str, word: str) -> None:
    failing = fake_pyspy(tmp_path, f"echo >> {tmp_path}/starts\n{script}")
    clock = Clock(0.0)

    def later(it: SourceReader) -> bool:
        clock.now_s += 0.5
        return bool(it.notices)

    with (
        running(tmp_path, SLEEP) as process,
        reading(ProcessTable(process.pid, None), clock=clock, binary=lambda: failing) as reader,
    ):
        reader.until(later, "a notice")
        (notice,) = reader.notices
        assert word in notice.message
        assert notice.hint
        for _ in range(20):
            reader.until(lambda it: later(it) or True, "a read")
        assert len(reader.notices) == 1
        assert len((tmp_path / "starts").read_text().splitlines()) < 10  # with growing pauses
        assert reader.lost
        assert reader.stacks == []


def test_a_pyspy_that_cannot_be_started(tmp_path: Path) -> None:
    broken = tmp_path / "py-spy"
    broken.write_text("no program")
    broken.chmod(stat.S_IRUSR)
    with running(tmp_path, SLEEP) as process, reading(trainer(process.pid), binary=lambda: str(broken)) as reader:
        reader.until(lambda it: it.notices, "a notice")
        assert "does not start" in reader.notices[0].message


WAIT = "import threading; print('up', flush=True); threading.Event().wait()"


def test_a_target_that_execs_in_the_middle_of_a_window(tmp_path: Path) -> None:
    after = tmp_path / "after.py"
    after.write_text("import time\ndef afterwards():\n    while True: time.sleep(0.001)\nafterwards()\n")
    source = f"""
import os, sys
def before():
    print("up", flush=True)
    sys.stdin.readline()
    os.execv(sys.executable, [sys.executable, {str(after)!r}])
before()
"""
    with running(tmp_path, source) as process, reading(trainer(process.pid), max_cpu_ratio=1.0) as reader:
        reader.until(lambda it: "before" in it.functions(), "a window of the old program")
        reader.until(lambda _: pyspies(), "another window")
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        reader.until(lambda it: "afterwards" in it.functions(), "a window of the new program")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_pyspy_that_was_stopped_or_killed_is_a_lost_window_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(pyspy.PySpyRecording, "STOP_TIMEOUT_S", 0.3)
    with running(tmp_path, WAIT) as process, reading(trainer(process.pid)) as reader:
        reader.until(lambda _: pyspies(), "py-spy to start")
        os.kill(pyspies()[0], number)
        reader.until(lambda it: it.lost and it.stacks, "its window to be given up, and the next one")
        assert reader.lost[0].pid == process.pid
        assert reader.notices == []


def test_a_pid_that_comes_back_is_another_process(tmp_path: Path) -> None:
    """The window of the old one is no longer wanted, the new one begins with short windows again."""
    with running(tmp_path, WAIT) as process, reading(trainer(process.pid), max_cpu_ratio=1.0) as reader:
        reader.until(lambda it: len(it.stacks) >= 2, "two windows")
        table = reader.source.table
        old = table.start_ticks(process.pid)
        assert old is not None
        table.publish({process.pid: old + 1}, {process.pid: "trainer"})
        reader.until(lambda it: len(it.stacks) >= 4, "two more")
        assert reader.stacks[3].window_s < 1.9 or reader.stacks[2].window_s < 1.9


def test_who_holds_the_gil(tmp_path: Path) -> None:
    source = """
import sys, threading
def hog():
    while True: sum(range(1000))
thread = threading.Thread(target=hog, daemon=True)
thread.start()
print("up", flush=True)
sys.stdin.readline()
print(thread.native_id, flush=True)
threading.Event().wait()
"""
    with running(tmp_path, source) as process, reading(trainer(process.pid)) as reader:
        reader.until(lambda it: it.gil and it.gil[-1].threads, "looks at the GIL")
        assert process.stdin and process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        hog = int(process.stdout.readline())
        window = reader.gil[-1]
        assert window.pid == process.pid
        assert window.samples >= 30  # of 0.6 s; how many py-spy came to take, the machine's load decides
        assert [thread.tid for thread in window.threads] == [hog]  # the other one waits without it
        assert [(each.tid, each.function) for each in window.functions] == [(hog, "hog")]
        assert len(msgspec.json.encode(window)) < 500


def test_a_free_threaded_python_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuimon.proc.processes.program_name", lambda pid: "python3.14t")
    for said in (
        "Error: Failed to find a python interpreter in the .data section",
        "Error: Unsupported version of Python: 3.14.0t",
        "Error: Failed to find python version from target process",
    ):
        problem = failures.explain(said, os.getpid())
        assert problem.denied  # its agent samples it
        assert problem.message == "no stack samples: py-spy cannot read free-threaded Python (python3.14t)"
        assert "tuimon run" in (problem.hint or "")


UTILS = "/lib/site-packages/torch/utils/data/_utils"
LOOP = RawFrame(f"{UTILS}/worker.py", 300, "_worker_loop")
IDLE = (LOOP, RawFrame("/lib/python3.11/multiprocessing/queues.py", 113, "Queue.get"))
WORKING = (LOOP, RawFrame(f"{UTILS}/fetch.py", 54, "_MapDatasetFetcher.fetch"), RawFrame("data.py", 9, "__getitem__"))


def window(idle: int, working: int) -> WindowSamples:
    stacks = Counter({IDLE: idle, WORKING: working})
    return WindowSamples([SampledThread(201, "MainThread", stacks)], idle + working)


@pytest.mark.parametrize(
    ("idle", "working", "idles"), [(8, 0, True), (8, 2, True), (7, 3, False), (0, 10, False), (7, 0, None)]
)
def test_a_worker_idles_that_waits_for_indices_in_most_of_enough_samples(idle, working, idles):
    assert is_idle_worker(window(idle, working)) is idles


#: Of a core; at 0.025 CPU seconds a window, the time between two is 10 s.
SHARE = 0.0025


class Recording:
    """A window that is over, and has cost what is expected."""

    def poll(self, now_s):
        return pyspy.EndedWindow(1, 0.6, now_s, 0.025, None)


class Looks:
    """A sampler of one process, and how many windows of it have begun."""

    def __init__(self):
        self.sampler = GilSampler()
        self.begun = 0

    def begun_s(self, begin_s, end_s, share=SHARE):
        """The seconds at which a window begins, where each has ended a second later."""
        seconds = []
        for now_s in range(begin_s, end_s):
            before = self.begun
            self.sampler.poll(now_s)
            self.sampler.begin_window("py-spy", [1], share, now_s)
            seconds += [now_s] * (self.begun - before)
        return seconds


@pytest.fixture
def looks(monkeypatch):
    found = Looks()

    def start(*args, **options):
        found.begun += 1
        return Recording()

    monkeypatch.setattr(pyspy.PySpyRecording, "start", start)
    return found


def test_the_first_windows_are_close_to_each_other_and_later_ones_within_the_budget(looks):
    assert looks.begun_s(0, 40) == [2, 4, 6, 8, 18, 28, 38]


def test_a_training_that_begins_is_looked_at_closely_again(looks):
    looks.begun_s(0, 20)
    looks.sampler.begin_training(20)
    assert looks.begun_s(20, 40) == [22, 24, 26, 28, 38]


def test_a_small_budget_spaces_the_first_windows_too(looks):
    assert looks.begun_s(0, 200, SHARE / 10) == [2, 12, 22, 32, 132]


def test_parked_threads_that_have_ended_are_forgotten_and_live_ones_named_once():
    records = WindowRecords(ProcessTable(os.getpid(), None))
    key = (os.getpid(), 1)
    named, sizes = [], []
    for first in range(1000, 21_000, 50):
        parked = [(1, "pool"), *((tid, f"thread {tid}") for tid in range(first, first + 50))]
        named += records.newly_parked(key, parked, {tid for tid, _ in parked})
        sizes.append(size_of(records))
    assert len(named) == 20_001
    assert max(sizes[10:]) <= sizes[9] + 5000
