"""Stack samples by the agent, where py-spy may not read the process."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.agent.programs import ROOT, environment
from tests.session.records import hot_lines, session_of
from tests.sources.fake_agent import FakeAgent
from tests.sources.stacks import denied
from tests.waiting import until
from tuimon.agent.control.sample import FrameWindow
from tuimon.agent.ring.control_words import Answer, State
from tuimon.agent.ring.files import STACKS, side_file, write_file
from tuimon.proc.target_files import TargetFiles
from tuimon.records import Notice, Record, Stacks
from tuimon.sources.base import Problem
from tuimon.sources.log.reader import decode
from tuimon.sources.log.source import read_records
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks import in_process, pyspy
from tuimon.sources.stacks.failures import SamplingFailures
from tuimon.sources.stacks.source import WindowRecords
from tuimon.sources.standstill import take_stacks
from tuimon.views.run_text import sampling_text

TRAINING = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def draw_batch():
    return torch.tensor([[float(len(str(number))) for number in range(500)][:4]])

while True:
    loss = model(draw_batch()).sum()
    loss.backward()
    optimizer.step()
"""
KEY = (4242, 7)
DENIED = Problem("no stack samples: ptrace of process 4242 is denied", "a hint", denied=True)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "train.py").write_text(TRAINING)
    process = subprocess.Popen([sys.executable, str(tmp_path / "train.py")], env=environment(tmp_path / "rings"))
    until(lambda: list((tmp_path / "rings").glob(f"{process.pid}-*.ring")), seconds=60)
    yield process
    process.kill()
    process.wait()


def attached(pid: int, folder: Path, *launcher: str) -> Iterator[list[Record]]:
    """The records of an attached monitor so far, again and again; at the end it is told to leave."""
    log = folder / "log.jsonl"
    command = [sys.executable, "-m", "tuimon", "attach", "--headless", "--no-gpu", "--log", str(log), "--force"]
    env = {**os.environ, "TUIMON_RING_DIR": str(folder / "rings"), "PYTHONPATH": str(ROOT)}
    monitor = subprocess.Popen([*launcher, *command, str(pid)], env=env, stderr=subprocess.DEVNULL)
    try:
        while monitor.poll() is None:
            yield list(read_records(str(log))) if log.exists() and log.stat().st_size else []
        assert monitor.returncode != denied.UNAVAILABLE or pytest.skip("this kernel has no Landlock")
    finally:
        monitor.send_signal(signal.SIGINT)
        monitor.wait()


def functions(records: list[Record], pid: int) -> set[str]:
    return {line.place.function for line in hot_lines(session_of(*records).over("recent"), pid)}


@pytest.mark.torch
def test_a_process_that_py_spy_may_not_read_is_sampled_by_its_agent(
    training: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    monitor = attached(training.pid, tmp_path, sys.executable, denied.__file__)
    wanted = {"draw_batch", "<listcomp>"}  # each window has but some samples
    records = until(lambda: wanted & functions(found := next(monitor), training.pid) and found, seconds=90)
    monitor.close()
    windows = [record for record in records if isinstance(record, Stacks) and record.samples]
    assert windows and all(window.in_process and window.pid == training.pid for window in windows)
    sampling = session_of(*records).over("recent").sampling()
    assert sampling is not None and sampling_text(sampling).startswith("in-process · ")
    notice = [record for record in records if isinstance(record, Notice) and record.source == "stacks"][-1]
    assert notice.level == "info" and notice.message.startswith("stacks are sampled in-process")
    assert "denied" in notice.message and "Python frames only" in notice.message
    until(lambda: not list((tmp_path / "rings").glob("*.stacks")))
    assert training.poll() is None


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    agent = FakeAgent(tmp_path)
    monkeypatch.setattr(in_process, "give_order", agent.give)
    return agent


class Sampler(in_process.InProcessSampler):
    """Of the process of that agent."""

    def __init__(self, agent: FakeAgent) -> None:
        super().__init__(4242, 10.0)
        self.agent = agent
        self.poll(0.0, 0.01)

    def problem_at(self, now_s: float) -> str | None:
        assert self.poll(now_s, 0.01) is None
        return self.problem and self.problem.message

    def window(self, raw: bytes | bytearray) -> pyspy.EndedWindow | None:
        """The window that it reads of these bytes."""
        Path(f"{self.agent.path}.stacks").write_bytes(raw)
        latest = self.agent.answer.value if self.agent.answer else 0
        self.agent.answer = Answer(1, State.WORKING, latest + 1, 0)
        return self.poll(5.0, 0.01)


def test_a_process_whose_thread_gets_no_turn_is_said_to_hold_the_gil(agent: FakeAgent) -> None:
    sampler = Sampler(agent)
    assert sampler.problem_at(5.0) is None
    assert sampler.problem_at(11.0) == "no backward pass has ended"
    agent.answer = Answer(1, State.WORKING, 0, 0)
    assert sampler.problem_at(8.0) is None
    late = sampler.problem_at(10.0)
    assert late is not None and "holds the GIL" in late
    assert late == sampler.problem_at(30.0)  # else each second would have a notice of its own


def test_an_agent_that_refuses_is_asked_again_later(agent: FakeAgent) -> None:
    agent.refusals = ["it takes no orders"]
    sampler = Sampler(agent)
    assert sampler.problem_at(20.0) == "it takes no orders"
    assert sampler.problem_at(31.0) is None and not sampler.is_delivering


def test_one_notice_says_how_it_is_sampled_and_why() -> None:
    failures = SamplingFailures("stacks")
    failures.add_failure(KEY, DENIED, 1.0)
    assert failures.denied(KEY)
    (first,) = failures.notices(1.0)
    assert (first.level, first.message) == ("warning", DENIED.message)
    (inside,) = failures.notices(2.0, in_process={KEY})
    assert inside.level == "info" and inside.hint == "a hint"
    assert inside.message.startswith("stacks are sampled in-process") and inside.message.endswith("4242 is denied")
    assert list(failures.notices(3.0, in_process={KEY})) == []
    (worse,) = failures.notices(4.0, others={KEY: Problem("it may be stuck")})
    assert worse.level == "warning" and worse.message == f"{DENIED.message}; it may be stuck"
    failures.clear(KEY)
    (over,) = failures.notices(5.0)
    assert over.level == "ok" and not failures.denied(KEY)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[", b'{"order": 1e999}', b'{"order": 1}', b"\xff" * 50])
def test_a_damaged_window_is_no_window(raw: bytes, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Sampler(agent).window(raw)
    assert ended is not None and ended.samples is None
    monkeypatch.setattr(in_process, "ring_path", lambda pid: agent.path)
    assert in_process.latest_samples(4242, 0.0) is None


def test_windows_with_damaged_bytes_give_records_that_can_be_read_back(agent: FakeAgent) -> None:
    window = {"order": 1, "window": 1, "begin_ns": 10**9, "end_ns": 3 * 10**9, "cpu_ns": 10**6, "instants": 2, "cut": 0,
              "profiles": [{"name": 'Thread 4242 "MainThread"', "samples": [[0, 1], [0]]},
                           {"name": 'Thread 0x7f0000000000 ""', "samples": [[1], [1]]}],
              "shared": {"frames": [{"name": "main", "file": "/home/me/train.py", "line": 7},
                                    {"name": "f", "file": "/home/me/train.py", "line": 20}]}}  # fmt: skip
    raw, rng = json.dumps(window).encode(), random.Random(3)
    sampler = Sampler(agent)
    records, sampled = WindowRecords(ProcessTable(os.getpid(), None)), 0
    for _ in range(3000):
        damaged = bytearray(raw)
        for _ in range(rng.choice((0, 1, 2, 6))):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(2)] = bytes([rng.choice((rng.randrange(256), *b"-0199999[]{}"))])
        ended = sampler.window(damaged)
        if ended is None or ended.samples is None:
            continue
        sampled += 1
        key = (4242, 1)
        for record in records.sampled_records(ended, ended.samples, key, TargetFiles(None), 5.0, in_process=True):
            assert decode(msgspec.json.encode(record)) is not None
    assert sampled > 500


def test_it_stands_in_where_py_spy_cannot_read(tmp_path, monkeypatch):
    ring = str(tmp_path / "1-2.ring")
    monkeypatch.setattr(in_process, "ring_path", lambda pid: ring)
    monkeypatch.setattr(pyspy, "find", lambda: None)
    window = FrameWindow()
    window.sample(-1)
    content = {**window.content(), "order": 1, "window": 1, "begin_ns": 100 * 10**9, "end_ns": 102 * 10**9, "cpu_ns": 1}
    assert isinstance(take_stacks([os.getpid()], 90.0)[os.getpid()], str)  # no window
    write_file(side_file(ring, STACKS), content)
    found = take_stacks([os.getpid()], 90.0)[os.getpid()]
    (mine,) = (thread for thread in found if thread.tid == threading.get_native_id())
    assert mine.stack[-1].file.endswith("control/sample.py")
    assert isinstance(take_stacks([os.getpid()], 101.5)[os.getpid()], str)  # mostly from before
