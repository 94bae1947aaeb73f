"""A trace that was taken: its records in the log, the file that is written, the user's lines in it."""

import gzip
import json
import os
from _thread import get_ident
from pathlib import Path

import msgspec
import pytest

from tests.sources.log.literal_log import HEADER, STEPS
from tests.sources.log.literal_log import write as write_log
from tests.sources.loop.loop_script import markers
from tests.sources.markers.literal_ring import PLAIN, SECOND, FakeReader
from tests.sources.markers.test_slowed import with_profiler
from tests.trace.kineto_file import of_recording, write
from tests.waiting import until
from tuimon.agent.control.sample import FrameWindow
from tuimon.agent.control.trace import LineSampler
from tuimon.agent.ring.files import TRACED, side_file
from tuimon.agent.ring.layout import PROFILER_ON, Marker
from tuimon.errors import TuimonError
from tuimon.records import TracedSync, TracedWork, TraceTaken
from tuimon.sources import tracing as trace_writer
from tuimon.sources.log.reader import decode
from tuimon.sources.markers.follower import RingFollower
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.trace_records import leave_record
from tuimon.sources.tracing import code_of, read_lines, stretches_of
from tuimon.trace.events import TakenBy, TracedStretch
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import record_of, summarize


class Training:
    """A loop of 16 ms whose steps 21 to 25 are traced, followed in windows of a second."""

    def __init__(self, folder: Path) -> None:
        sequence = with_profiler(PLAIN * 21, PLAIN * 5, PLAIN * 400)
        self.reader = FakeReader(sequence)
        self.reader.path = str(folder / "42-7.ring")
        self.begin_s = next(time_ns for time_ns, kind, _, _ in sequence if kind == PROFILER_ON) / 1e9
        self.follower = RingFollower(self.reader, 1.0, 10 * SECOND)

    def records(self, until_s: int) -> list[TraceTaken]:
        return [r for r in self.follower.windows(until_s * SECOND) if isinstance(r, TraceTaken)]

    def trace_again(self, at_s: int) -> float:
        """One more step is traced."""
        again = with_profiler(PLAIN, PLAIN, PLAIN * 3)
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
    trace.path, trace.taken = long, TakenBy(pid=5, steps=4, begin_s=1.0, end_s=2.0, torch=long)
    record = record_of(everything)
    assert len(msgspec.json.encode(record)) < 16_000
    listed = (record.operators, record.kernels, record.syncs)
    assert all(listed)
    assert record.folded == 1500 - sum(map(len, listed))
    trace.path = "/home/me/t.json.gz"
    usual = record_of(summary)
    assert len(msgspec.json.encode(usual)) < 6_000
    assert usual.gpu_busy_ns < usual.gpu_span_ns and usual.kernels and usual.operators == []


def test_a_loop_without_a_trace_reads_no_file(tmp_path: Path) -> None:
    reader = FakeReader(markers(PLAIN * 100, 10 * SECOND))
    reader.path = str(tmp_path / "42-7.ring")
    leave_record(reader.path, taken(10.1))
    follower = RingFollower(reader, 1.0, 10 * SECOND)
    assert not [record for record in follower.windows(14 * SECOND) if isinstance(record, TraceTaken)]


def test_a_trace_takes_the_place_of_nothing_that_the_user_has_not_given_up(tmp_path: Path) -> None:
    raw, log = tmp_path / "raw.json", write_log(tmp_path / "run.jsonl", HEADER, STEPS)
    raw.write_text('{"traceEvents": []}')
    before = log.read_bytes()
    with pytest.raises(TuimonError, match="is a tuimon log"):
        trace_writer.write_trace(str(raw), str(log), TakenBy(), ([], [], []), 0, force=True)
    with pytest.raises(TuimonError, match="exists"):
        trace_writer.write_trace(str(raw), str(raw), TakenBy(), ([], [], []), 0)
    assert log.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["raw.json", "run.jsonl"]


@pytest.mark.parametrize("form", ['{"baseTimeNanoseconds": 5000, %s}', '{%s, "baseTimeNanoseconds": 5000}'])
@pytest.mark.parametrize("filling", [0, trace_writer.HEAD_BYTES])
def test_times_count_from_the_base_wherever_the_file_tells_it(form: str, filling: int, tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 4.0, "dur": 1.0, "args": {"of": "-" * filling}}]
    raw, path = tmp_path / "raw.json", tmp_path / "trace.json.gz"
    raw.write_text(form % f'"traceEvents": {json.dumps(events)}')
    trace_writer.write_trace(str(raw), str(path), TakenBy(), ([TracedStretch("step 1", 2000, 4000)], [], []), 6000)
    with gzip.open(path) as file:
        written = json.load(file)
    assert written["baseTimeNanoseconds"] == 5000 and written["traceEvents"][-1] == events[0]
    assert [(event["ts"], event["dur"]) for event in written["traceEvents"] if event.get("cat") == "tuimon_step"] == [
        (3.0, 2.0)
    ]


MS = 1_000_000
FILE = {
    "order": 7,
    "frames": [
        {"name": "main", "file": "/home/me/train.py", "line": 44},
        {"name": "forward", "file": "/home/me/model.py", "line": 9},
        {"name": "linear", "file": "/usr/lib/python3/site-packages/torch/nn/functional.py", "line": 5},
        {"name": "_run", "file": "/usr/lib/python3.11/threading.py", "line": 1},
    ],
    "stacks": [[0, 1, 2], [0], [3], [9]],
    "samples": [[10 * MS, 0], [11 * MS, 0], [12 * MS, 1], [13 * MS, 2], [14 * MS, 3], [25 * MS, 1]],
}


def test_the_innermost_line_of_the_user_stands_for_the_time_around_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "1-1.ring.lines"
    path.write_text(json.dumps(FILE))
    assert read_lines(str(path), 7, ProcessCode()) == [
        TracedStretch("forward() model.py:9", round(8.5 * MS), round(11.5 * MS)),
        TracedStretch("main() train.py:44", round(11.5 * MS), round(12.5 * MS)),
        TracedStretch("main() train.py:44", round(23.5 * MS), round(26.5 * MS)),
    ]
    assert not list(tmp_path.iterdir())


def test_lines_of_a_package_that_is_the_program_are_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [f"/v/lib/python3.11/site-packages/{name}.py" for name in ("nice/__main__", "nice/train", "torch/_tensor")]
    backward = [[0, 5, "<module>"], [1, 44, "main"], [2, 600, "backward"]]
    reader = FakeReader("")
    monkeypatch.setattr(reader, "meta", lambda: {"loop": {"files": files, "backward": backward}})
    path = tmp_path / "1-1.ring.lines"
    own = {"name": "main", "file": files[1], "line": 44}
    path.write_text(json.dumps({**FILE, "frames": [own], "stacks": [[0]], "samples": [[10 * MS, 0], [11 * MS, 0]]}))
    assert {each.name for each in read_lines(str(path), 7, code_of(reader))} == {"main() train.py:44"}


@pytest.mark.parametrize("content", ["", "[]", json.dumps({**FILE, "order": 6}), json.dumps({**FILE, "samples": 5})])
def test_what_is_damaged_or_of_another_trace_has_no_lines(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_writer, "STACKS_TIMEOUT_S", 0.0)
    path = tmp_path / "1-1.ring.lines"
    path.write_text(content)
    assert read_lines(str(path), 7, ProcessCode()) == []


def test_one_sample_says_nothing_of_how_long() -> None:
    assert stretches_of([(5, 0)], ["a"]) == stretches_of([(5, 0), (5, 0), (4, 0)], ["a"]) == []


def test_a_trace_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    sampler = LineSampler(str(tmp_path / "1-1.ring"), get_ident(), 3, 1, FrameWindow())
    sampler.is_kept = False
    sampler.start()
    sampler.stop()
    until(lambda: not sampler.is_running())
    assert not list(tmp_path.iterdir())
