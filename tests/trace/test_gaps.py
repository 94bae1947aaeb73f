"""What the GPU waited for, in traces of a few events, and in those of recorded trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trace.kineto_file import call, copy, event, kernel, of_recording, write
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import Summary, summarize

US = 1000


def summary(tmp_path: Path, *events: dict) -> Summary:
    whole = [event("tuimon_step", "step 0", 0, 1000 * US), *events]
    return summarize(read_trace(write(tmp_path / "trace.json", whole)))


def launched(begin_us: int, end_us: int, correlation: int, called_us: int, stream: int = 7) -> list[dict]:
    return [
        call("cudaLaunchKernel", called_us * US, (called_us + 5) * US, correlation),
        kernel(f"kernel {correlation}", begin_us * US, end_us * US, correlation, stream),
    ]


def waits(found: Summary) -> list[tuple[str, str, int]]:
    return [(row.cause, row.what, row.total_ns // US) for row in found.waits]


def test_nothing_was_launched(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        *launched(10, 100, 1, 0),
        event("cpu_op", "aten::mm", 290 * US, 310 * US),
        *launched(303, 400, 2, 300),
    )
    assert waits(found) == [("launch", "aten::mm", 200), ("start", "", 3)]
    assert found.gpus[0].busy_ns == (90 + 97) * US


def test_after_a_synchronisation(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        *launched(10, 100, 1, 0),
        event("cpu_op", "aten::item", 20 * US, 110 * US),
        event("cpu_op", "aten::_local_scalar_dense", 21 * US, 109 * US),
        call("cudaStreamSynchronize", 22 * US, 108 * US),
        *launched(203, 300, 2, 200),
    )
    assert waits(found)[0] == ("sync", "aten::item: cudaStreamSynchronize", 100)


def test_for_a_batch(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        *launched(10, 100, 1, 0),
        event("tuimon_phase", "data", 90 * US, 480 * US),
        event("tuimon_phase", "forward", 480 * US, 1000 * US),
        *launched(503, 600, 2, 500),
    )
    assert waits(found)[0] == ("data", "", 400)
    rows = {row.name: row for row in found.phases}
    # the stream reaches the begin of data when its kernel has ended, at 100 us, and its end as the CPU does
    assert (rows["data"].gpu_ns, rows["data"].gpu_idle_ns) == (380 * US, 380 * US)
    assert (rows["forward"].gpu_ns, rows["forward"].gpu_idle_ns) == (520 * US, 423 * US)


def test_for_a_copy_from_memory_that_is_not_pinned(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        *launched(10, 100, 1, 0),
        call("cudaMemcpyAsync", 110 * US, 300 * US, 9),
        copy("Memcpy HtoD (Pageable -> Device)", 120 * US, 290 * US, 9),
        *launched(310, 400, 2, 302),
    )
    assert ("copy", "Memcpy HtoD (Pageable -> Device)", 170) in waits(found)
    (row,) = found.copies
    assert (row.kind, row.pinned, row.count, row.total_bytes) == ("host to GPU", False, 1, 1 << 20)


def test_for_another_stream(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        *launched(10, 100, 1, 0),
        *launched(50, 500, 3, 20, stream=20),
        *launched(505, 600, 2, 30),
    )
    assert waits(found) == [("other stream", "kernel 3", 405)]


def test_for_the_allocator(tmp_path: Path) -> None:
    found = summary(
        tmp_path, *launched(10, 100, 1, 0), call("cudaFree", 105 * US, 400 * US), *launched(410, 500, 2, 402)
    )
    assert waits(found)[0] == ("memory", "cudaFree", 302)


def test_a_kernel_of_unknown_origin_accuses_nobody(tmp_path: Path) -> None:
    found = summary(tmp_path, *launched(10, 100, 1, 0), kernel("kernel", 400 * US, 500 * US, 77))
    assert waits(found) == [("unknown", "", 300)]


def test_the_line_of_the_user_where_the_trace_has_python(tmp_path: Path) -> None:
    found = summary(
        tmp_path,
        event("python_function", "train.py(12): train", 0, 900 * US),
        event("python_function", "torch/nn/modules/module.py(1775): _call_impl", 1 * US, 600 * US),
        *launched(10, 100, 1, 2),
        *launched(303, 400, 2, 300),
    )
    assert found.waits[0].where == "train() train.py:12"


#: Shares of the GPU's time in %, as recorded with each training: idle, waited for data, for launches (or what held the
#: CPU up), for another stream.
_TRUE_SHARES = {
    "resnet50_nw0_a": (42, 32, 9, 1),
    "resnet18_mallocs": (93, 0, 93, 0),
    "ddp_resnet_checkpoint": (0.5, 0, 0, 62),
}


@pytest.mark.parametrize("name", _TRUE_SHARES)
def test_recorded_trainings(tmp_path: Path, name: str) -> None:
    found = summarize(read_trace(write(tmp_path / "trace.json.gz", of_recording(name))))
    gpu = found.gpus[0]
    shares = {"idle": 100 - 100 * gpu.busy_ns / gpu.span_ns}
    for row in found.waits:
        part = {"data": "data", "other stream": "other stream"}.get(row.cause, "host")
        shares[part] = shares.get(part, 0) + 100 * row.total_ns / gpu.span_ns
    idle, data, host, other = _TRUE_SHARES[name]
    assert shares["idle"] == pytest.approx(idle, abs=3)
    assert shares.get("data", 0) == pytest.approx(data, abs=4)
    assert shares.get("other stream", 0) == pytest.approx(other, abs=5)
    assert shares.get("host", 0) == pytest.approx(host, abs=8)
