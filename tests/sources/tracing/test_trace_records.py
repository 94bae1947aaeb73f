"""A trace that was taken comes into the log of the run: once, with its first step's number, and small."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.sources.loop.loop_script import markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader
from tests.sources.markers.test_slowed import with_profiler
from tests.trace.kineto_file import of_recording, write
from tuimon.agent.ring.layout import PROFILER_ON, Marker
from tuimon.agent.ring.side_files import TRACED, side_file
from tuimon.records import TracedSync, TracedWork, TraceTaken
from tuimon.sources.log.decode import decode
from tuimon.sources.markers.follower import RingFollower
from tuimon.sources.tracing.trace_records import leave_record
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import record_of, summarize


class Training:
    """A loop of 16 ms whose steps 21 to 25 are traced, followed in windows of a second."""

    def __init__(self, folder: Path) -> None:
        sequence = with_profiler(" ".join([PLAIN] * 21), " ".join([PLAIN] * 5), " ".join([PLAIN] * 400))
        self.reader = FakeReader(sequence)
        self.reader.path = str(folder / "42-7.ring")
        self.begin_s = next(time_ns for time_ns, kind, _, _ in sequence if kind == PROFILER_ON) / 1e9
        self.follower = RingFollower(self.reader, 1.0, 10 * SECOND)

    def records(self, until_s: int) -> list[TraceTaken]:
        return [r for r in self.follower.windows(until_s * SECOND) if isinstance(r, TraceTaken)]

    def trace_again(self, at_s: int) -> float:
        """One more step is traced."""
        again = with_profiler(PLAIN, PLAIN, " ".join([PLAIN] * 3))
        self.reader.waiting = [Marker(at + (at_s - 10) * SECOND, *rest[:2], 7, rest[2]) for at, *rest in again]
        return next(marker.time_ns for marker in self.reader.waiting if marker.kind == PROFILER_ON) / 1e9


def taken(begin_s: float, **more: object) -> TraceTaken:
    facts = {"t": 1.0, "pid": 1, "begin_s": begin_s, "end_s": begin_s + 0.08, "steps": 5, "wanted": 5, "file": "/t.gz"}
    return TraceTaken(**{**facts, **more})


def test_the_record_comes_once_and_names_its_first_step(tmp_path: Path) -> None:
    training = Training(tmp_path)
    assert training.records(11) == []
    leave_record(training.reader.path, taken(training.begin_s - 1e-5, rank=1))
    (record,) = training.records(12)
    assert (record.pid, record.t, record.first_step, record.steps, record.rank) == (42, 12.0, 21, 5, 1)
    assert training.records(14) == []
    assert decode(msgspec.json.encode(record)) == record


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1", b'{"type":"trace","t":-4}', b'{"type":"steps"}'])
def test_what_is_damaged_or_of_another_trace_is_passed_over(tmp_path: Path, content: bytes) -> None:
    training = Training(tmp_path)
    training.records(11)
    Path(side_file(training.reader.path, TRACED)).write_bytes(content)
    assert training.records(12) == []
    leave_record(training.reader.path, taken(3.0))  # before this monitor came
    assert training.records(13) == []


def test_many_traces_leave_small_records(tmp_path: Path) -> None:
    training = Training(tmp_path)
    sync = ("cudaStreamSynchronize", "aten::nonzero", "forward", "main() train.py:4", 1, 2)
    row = taken(0.0, operators=[("aten::mm", "forward", 1, 2)], syncs=[sync])
    sizes = []
    for number in range(70):
        begin_s = training.trace_again(20 + 2 * number)
        training.records(22 + 2 * number)
        left = msgspec.structs.replace(msgspec.convert(msgspec.to_builtins(row), TraceTaken), begin_s=begin_s)
        leave_record(training.reader.path, left)
        (record,) = training.records(23 + 2 * number)
        sizes.append(len(record.operators))
        assert len(record.operators) + len(record.syncs) + record.folded == 2
    assert sum(sizes) == 60


def test_a_record_is_small_whatever_the_trace_holds(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "t.json.gz", of_recording("resnet50_nw0_a")))
    summary, long = summarize(trace), "é<" * 4000
    everything = summary._replace(
        operators=[TracedWork(long, long, 2**60, 2**60, 2**60)] * 500,
        kernels=[TracedWork(long, long, 2**60, 2**60)] * 500,
        syncs=[TracedSync(long, long, long, long, 2**60, 2**60)] * 500,
    )
    record = record_of(long, TakenBy(pid=5, steps=4, begin_s=1.0, end_s=2.0, torch=long), everything)
    assert len(msgspec.json.encode(record)) < 16_000
    listed = (record.operators, record.kernels, record.syncs)
    assert all(listed)
    assert record.folded == 1500 - sum(map(len, listed))
    usual = record_of("/home/me/t.json.gz", TakenBy(pid=5, steps=4, begin_s=1.0, end_s=2.0), summary)
    assert len(msgspec.json.encode(usual)) < 6_000
    assert usual.gpu_busy_ns < usual.gpu_span_ns and usual.kernels and usual.operators == []


def test_a_loop_without_a_trace_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = FakeReader(markers(" ".join([PLAIN] * 100), 10 * SECOND))
    reader.path = str(tmp_path / "42-7.ring")
    leave_record(reader.path, taken(10.1))
    follower = RingFollower(reader, 1.0, 10 * SECOND)
    assert not [record for record in follower.windows(14 * SECOND) if isinstance(record, TraceTaken)]
