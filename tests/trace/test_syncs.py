"""Where the CPU waited for the GPU, by line and operator, in made traces of a few events."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trace.kineto_file import TID, call, copy, event, write
from tuimon.records import TracedSync
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import summarize

US = 1000


def syncs(tmp_path: Path, *events: dict) -> list[TracedSync]:
    whole = [event("tuimon_step", "step 0", 0, 10_000 * US), event("cpu_op", "aten::mm", 0, US), *events]
    return summarize(read_trace(write(tmp_path / "trace.json", whole))).syncs


def item(begin_us: int, end_us: int, tid: int = TID) -> list[dict]:
    """``.item()`` as torch 2.5 and later make it: a copy to pinned memory, then a synchronisation."""
    return [
        event("cpu_op", "aten::item", begin_us * US, end_us * US, tid),
        event("cpu_op", "aten::_local_scalar_dense", (begin_us + 1) * US, (end_us - 1) * US, tid),
        call("cudaMemcpyAsync", (begin_us + 2) * US, (begin_us + 8) * US, begin_us, tid),
        call("cudaStreamSynchronize", (begin_us + 10) * US, (end_us - 2) * US, tid=tid),
        copy("Memcpy DtoH (Device -> Pinned)", (end_us - 12) * US, (end_us - 10) * US, begin_us),
    ]


def copied(operator: str, kind: str, call_us: tuple[int, int], copy_us: tuple[int, int]) -> list[dict]:
    """A copy, which torch follows with a synchronisation of 3 us."""
    begin_us, end_us = call_us
    return [
        event("cpu_op", operator, (begin_us - 2) * US, (end_us + 10) * US),
        call("cudaMemcpyAsync", begin_us * US, end_us * US, begin_us),
        copy(f"Memcpy {kind}", copy_us[0] * US, copy_us[1] * US, begin_us),
        call("cudaStreamSynchronize", (end_us + 2) * US, (end_us + 5) * US),
    ]


def line(name: str, begin_us: int, end_us: int) -> dict:
    return event("tuimon_line", name, begin_us * US, end_us * US)


def test_waits_by_line_and_operator(tmp_path: Path) -> None:
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
def test_what_a_copy_waits(
    tmp_path: Path, kind: str, call_us: tuple[int, int], copy_us: tuple[int, int], waited_us: int
) -> None:
    (row,) = syncs(tmp_path, *copied("aten::copy_", kind, call_us, copy_us))
    assert (row.count, row.total_ns) == (1, waited_us * US)
    assert row.call == ("cudaMemcpyAsync" if waited_us > 3 else "cudaStreamSynchronize")


def test_a_copy_and_a_later_synchronisation_are_two_waits(tmp_path: Path) -> None:
    found = syncs(
        tmp_path,
        *copied("aten::copy_", "DtoH (Device -> Pageable)", (100, 133), (122, 125)),
        call("cudaDeviceSynchronize", 500 * US, 600 * US),
    )
    assert [(row.name, row.count) for row in found] == [("cudaDeviceSynchronize", 1), ("aten::copy_", 1)]


def test_threads_without_operators_do_not_count_but_backwards_does(tmp_path: Path) -> None:
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
