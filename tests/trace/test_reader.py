"""Reading trace files: what torch writes, what others write, and what nobody should have written."""

import contextlib
import gzip
import json
import os
import random
from pathlib import Path

import pytest

from tests.agent.programs import environment
from tests.trace import kineto_file
from tests.trace.kineto_file import TID, call, copy, event, kernel, of_recording, write
from tests.warm_torch import warm_python
from tuimon.errors import TraceError
from tuimon.records import TracedSync, TracedWork
from tuimon.trace import reader
from tuimon.trace.events import EventKind
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import summarize

_TORCH = """
import sys, torch
from torch.profiler import profile, record_function, ProfilerActivity
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with profile(activities=[ProfilerActivity.CPU]) as traced:
    for number in range(3):
        with record_function("ProfilerStep#%d" % number):
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
traced.export_chrome_trace(sys.argv[1])
"""


def small():
    return [
        event("tuimon_step", "step 7", 0, 10_000),
        event("cpu_op", "aten::linear", 1000, 5000, **{"External id": 3}),
        call("cudaLaunchKernel", 2000, 3000, 5),
        kernel("gemm", 6000, 9000, 5),
        copy("Memcpy HtoD (Pinned -> Device)", 9100, 9200, 6),
        {"ph": "s", "id": 5, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 0},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "ts": 0, "args": {"name": "stream 7 "}},
    ]


@pytest.mark.torch
def test_what_torch_exports(tmp_path):
    path = tmp_path / "trace.json.gz"
    assert warm_python("-c", _TORCH, str(path), env=environment(None)).returncode == 0
    trace = read_trace(str(path))
    summary = summarize(trace)
    rows = {(row.name, row.phase): row for row in summary.operators}
    assert (trace.ended_early, trace.unreadable, trace.dropped) == (None, 0, 0)
    assert summary.steps == 3
    assert rows["aten::linear", "forward"].count == 3
    assert ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "backward") in rows
    assert 0 < sum(row.total_ns for row in summary.operators) <= summary.span_ns


def check_small(trace):
    assert [trace.events.name_of(i) for i in range(4)] == [
        "aten::linear", "cudaLaunchKernel", "gemm", "Memcpy HtoD (Pinned -> Device)",
    ]  # fmt: skip
    assert [trace.events.length_ns(i) for i in range(4)] == [4000, 1000, 3000, 100]
    assert [step.name for step in trace.steps.all] == ["step 7"]
    assert list(trace.events.correlation) == [0, 5, 5, 6] and trace.device_names == {0: "Tesla V100"}


def test_other_layouts_of_the_same_json(tmp_path):
    file = json.loads(kineto_file.contents(small()))
    path = tmp_path / "trace.json"
    for text in (json.dumps(file), json.dumps(file, indent=1), json.dumps(file, separators=(",", ":"))):
        path.write_text(text)
        check_small(read_trace(str(path)))
    path.write_text(json.dumps(file["traceEvents"]))  # an array alone is a Chrome trace too
    assert len(read_trace(str(path)).events) == 4


def test_braces_in_names_do_not_divide_events(tmp_path):
    name = "void f<{lambda(int)#1}, {lambda(float)#2}>"
    events = [kernel(name, i * 10, i * 10 + 5, i) for i in range(2000)]
    trace = read_trace(write(tmp_path / "trace.json", events))
    assert (len(trace.events), trace.unreadable, trace.ended_early) == (2000, 0, None)
    assert trace.events.names == [name]


@pytest.mark.parametrize(("name", "share"), [("trace.json", 0.3), ("trace.json.gz", 0.7), ("trace.json.gz", 0.999)])
def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path, name, share):
    shuffled = random.Random(4)
    events = [event("cpu_op", f"op{shuffled.random()}", i, i + 1) for i in range(20_000)]
    path = Path(write(tmp_path / name, events))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    trace = read_trace(str(path))
    assert trace.ended_early == "it is cut off"
    assert 20_000 * share * 0.5 < len(trace.events) < 20_000
    assert trace.unreadable == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\0" * 5000, b"\x1f\x8b", b"\x1f\x8b" + b"x" * 400, b'{"traceEvents": 3}', b"<html>", b"[" * 100_000],
)
def test_what_is_no_trace_is_refused_or_empty(tmp_path, content):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    try:
        assert len(read_trace(str(path)).events) == 0
    except TraceError as error:
        assert "no trace" in error.message


def test_no_pipe_and_no_folder_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(TraceError):
            read_trace(str(path))


def test_a_small_file_that_unpacks_to_much_ends_at_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "TRACE_BYTES", 30 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (100 << 20)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "EVENT_BYTES", 1 << 20)
        trace = read_trace(str(path))
    assert (len(trace.events), trace.ended_early) == (0, "it is damaged")


def test_events_beyond_the_limit_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "EVENTS_LIMIT", 100)
    monkeypatch.setattr(reader, "NAMES_LIMIT", 10)
    monkeypatch.setattr(reader, "TRACKS_LIMIT", 5)
    events = [event("cpu_op", f"op{i}", i, i + 1, tid=i) for i in range(150)]
    trace = read_trace(write(tmp_path / "trace.json", events))
    assert (len(trace.events), trace.dropped) == (100, 50)
    assert len(trace.events.names) == 11
    assert trace.events.names[-1] == "…"
    assert len(trace.devices) == 5


_ODD = [
    None, True, -1, 2**70, 1e300, "", "\x1b[31mred\n", "7", [], [1, 2, 3], [2**40] * 3, {}, {"name": 3}, "x" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_odd_fields_harm_nothing(tmp_path, seed):
    choose = random.Random(seed)
    events = small() * 3
    for _ in range(20):
        at = choose.randrange(len(events))
        changed = json.loads(json.dumps(events[at]))
        inside = changed.get("args") if choose.random() < 0.5 else changed
        if isinstance(inside, dict) and inside:
            inside[choose.choice(sorted(inside))] = choose.choice(_ODD)
        events[at] = changed
    trace = read_trace(write(tmp_path / "trace.json", events, tuimon=choose.choice(_ODD)))
    summary = summarize(trace)
    shown = [row.name for row in (*summary.operators, *summary.kernels)] + trace.events.names
    assert all("\x1b" not in name and "\n" not in name and len(name) <= 400 for name in shown)
    assert all(trace.events.length_ns(i) >= 0 for i in range(len(trace.events)))


@pytest.mark.parametrize("seed", range(15))
def test_damaged_bytes_harm_nothing(tmp_path, seed):
    choose = random.Random(seed)
    path = Path(write(tmp_path / choose.choice(("trace.json", "trace.json.gz")), small() * 40))
    data = bytearray(path.read_bytes())
    for _ in range(choose.randrange(1, 30)):
        data[choose.randrange(len(data))] = choose.randrange(256)
    path.write_bytes(data)
    with contextlib.suppress(TraceError):
        summarize(read_trace(str(path)))


def test_times_keep_their_nanoseconds(tmp_path):
    trace = read_trace(
        write(tmp_path / "t.json", [event("cpu_op", "a", 0, 17), event("cpu_op", "b", 123_456_789, 123_456_790)])
    )
    assert list(trace.events.begin_ns) == [0, 123_456_789]
    assert list(trace.events.end_ns) == [17, 123_456_790]
    assert trace.events.kind[0] == EventKind.OPERATOR


#: Idle shares of the GPU's time in %, as recorded with each training.
_IDLE = {"resnet50_nw0_a": 42, "resnet18_mallocs": 93, "ddp_resnet_checkpoint": 0.5}


@pytest.mark.parametrize("name", _IDLE)
def test_the_idle_share_is_that_of_the_recording(tmp_path, name):
    (gpu, *_) = summarize(read_trace(write(tmp_path / "trace.json.gz", of_recording(name)))).gpus
    assert 100 - 100 * gpu.busy_ns / gpu.span_ns == pytest.approx(_IDLE[name], abs=3)


US = 1000


def syncs(tmp_path, *events):
    whole = [event("tuimon_step", "step 0", 0, 10_000 * US), event("cpu_op", "aten::mm", 0, US), *events]
    return summarize(read_trace(write(tmp_path / "trace.json", whole))).syncs


def item(begin_us, end_us, tid=TID):
    """``.item()`` as torch 2.5 and later make it: a copy to pinned memory, then a synchronisation."""
    return [
        event("cpu_op", "aten::item", begin_us * US, end_us * US, tid),
        event("cpu_op", "aten::_local_scalar_dense", (begin_us + 1) * US, (end_us - 1) * US, tid),
        call("cudaMemcpyAsync", (begin_us + 2) * US, (begin_us + 8) * US, begin_us, tid),
        call("cudaStreamSynchronize", (begin_us + 10) * US, (end_us - 2) * US, tid=tid),
        copy("Memcpy DtoH (Device -> Pinned)", (end_us - 12) * US, (end_us - 10) * US, begin_us),
    ]


def copied(operator, kind, call_us, copy_us):
    """A copy, which torch follows with a synchronisation of 3 us."""
    begin_us, end_us = call_us
    return [
        event("cpu_op", operator, (begin_us - 2) * US, (end_us + 10) * US),
        call("cudaMemcpyAsync", begin_us * US, end_us * US, begin_us),
        copy(f"Memcpy {kind}", copy_us[0] * US, copy_us[1] * US, begin_us),
        call("cudaStreamSynchronize", (end_us + 2) * US, (end_us + 5) * US),
    ]


def line(name, begin_us, end_us):
    return event("tuimon_line", name, begin_us * US, end_us * US)


def test_of_what_runs_in_two_phases_each_row_names_a_line_of_its_own_phase(tmp_path):
    whole = [
        event("tuimon_step", "step 0", 0, 10_000 * US),
        event("tuimon_phase", "forward", 0, 4000 * US),
        event("tuimon_phase", "backward", 4000 * US, 10_000 * US),
        line("masked() loss.py:8", 100, 1500),
        line("mean() loss.py:9", 1500, 4000),
        line("main() train.py:30", 4000, 9000),
        *[event("cpu_op", "aten::nonzero", at * US, (at + 500) * US) for at in (200, 800, 2000)],
        *[event("cpu_op", "aten::nonzero", at * US, (at + 300) * US) for at in (4000, 5000, 6000)],
        call("cudaLaunchKernel", 5050 * US, 5060 * US, 7),
        kernel("select", 5100 * US, 5200 * US, 7),
    ]
    operators = summarize(read_trace(write(tmp_path / "trace.json", whole))).operators
    assert operators == [
        TracedWork("aten::nonzero", "forward", 3, 1500 * US, 0, "masked() loss.py:8 (67 %)"),
        TracedWork("aten::nonzero", "backward", 3, 900 * US, 100 * US, "main() train.py:30"),
    ]


def test_waits_by_line_and_operator(tmp_path):
    found = syncs(
        tmp_path,
        event("tuimon_phase", "forward", 0, 4000 * US),
        event("tuimon_phase", "other", 4000 * US, 10_000 * US),
        line("masked() loss.py:8", 100, 1500),
        line("main() train.py:30", 1500, 4000),
        line("main() train.py:45", 4000, 6000),
        event("cpu_op", "aten::index", 200 * US, 700 * US),
        event("cpu_op", "aten::nonzero", 210 * US, 690 * US),
        call("cudaStreamSynchronize", 300 * US, 600 * US),
        event("cpu_op", "aten::nonzero", 1000 * US, 1400 * US),
        call("cudaStreamSynchronize", 1100 * US, 1300 * US),
        *copied("aten::copy_", "HtoD (Pageable -> Device)", (2000, 3020), (2100, 3025)),
        *item(4100, 4500),
        call("cudaDeviceSynchronize", 7000 * US, 7100 * US),
    )
    assert found == [
        TracedSync("cudaMemcpyAsync", "aten::copy_", "forward", "main() train.py:30", 1, 1003 * US),
        TracedSync("cudaStreamSynchronize", "aten::nonzero", "forward", "masked() loss.py:8", 2, 500 * US),
        TracedSync("cudaStreamSynchronize", "aten::_local_scalar_dense", "other", "main() train.py:45", 1, 388 * US),
        TracedSync("cudaDeviceSynchronize", "", "other", "", 1, 100 * US),
    ]


@pytest.mark.parametrize(
    ("kind", "call_us", "copy_us", "waited_us"),
    [
        ("DtoH (Device -> Pageable)", (100, 133), (122, 125), 33 + 3),  # it returned after the copy
        ("HtoD (Pageable -> Device)", (100, 1000), (140, 1005), 880 + 3),  # before: beyond what staging takes
        ("HtoD (Pageable -> Device)", (100, 115), (140, 150), 3),  # only staged
        ("HtoD (Pinned -> Device)", (100, 160), (120, 130), 3),  # never waits, however long the call took
        ("DtoD (Device -> Device)", (100, 160), (120, 130), 3),
    ],
)
def test_what_a_copy_waits(tmp_path, kind, call_us, copy_us, waited_us):
    (row,) = syncs(tmp_path, *copied("aten::copy_", kind, call_us, copy_us))
    assert (row.count, row.total_ns) == (1, waited_us * US)
    assert row.call == ("cudaMemcpyAsync" if waited_us > 3 else "cudaStreamSynchronize")


def test_a_copy_and_a_later_synchronisation_are_two_waits(tmp_path):
    found = syncs(
        tmp_path,
        *copied("aten::copy_", "DtoH (Device -> Pageable)", (100, 133), (122, 125)),
        call("cudaDeviceSynchronize", 500 * US, 600 * US),
    )
    assert [(row.name, row.count) for row in found] == [("cudaDeviceSynchronize", 1), ("aten::copy_", 1)]


def test_threads_without_operators_do_not_count_but_backwards_does(tmp_path):
    """A thread that pins memory waits for the GPU as well; the training does not wait with it."""
    found = syncs(
        tmp_path,
        call("cudaEventSynchronize", 100 * US, 900 * US, tid=77),
        event("tuimon_phase", "backward", 0, 5000 * US),
        line("main() train.py:31", 0, 5000),
        event("cpu_op", "autograd::engine::evaluate_function: IndexBackward0", 1000 * US, 1500 * US, tid=78),
        event("cpu_op", "aten::nonzero", 1100 * US, 1400 * US, tid=78),
        call("cudaStreamSynchronize", 1200 * US, 1300 * US, tid=78),
    )
    assert found == [
        TracedSync("cudaStreamSynchronize", "aten::nonzero", "backward", "main() train.py:31", 1, 100 * US)
    ]


def test_time_of_collectives_alone_is_no_computing(tmp_path):
    events = [
        event("tuimon_step", "step 0", 0, 1000 * US),
        event("cpu_op", "aten::mm", 0, US),
        call("cudaLaunchKernel", 0, US, 1),
        kernel("gemm", 0, 400 * US, 1),
        call("cudaLaunchKernel", US, 2 * US, 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300 * US, 900 * US, 2, stream=20),
    ]
    (gpu,) = summarize(read_trace(write(tmp_path / "trace.json", events))).gpus
    assert (gpu.busy_ns, gpu.computing_ns) == (900 * US, 400 * US)
    (alone,) = summarize(read_trace(write(tmp_path / "alone.json", events[:4]))).gpus
    assert alone.computing_ns is None
