"""The trace on the screen and in the report."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import to_builtins

from tests.session.records import header, one_process, session_of, steps
from tests.trace.kineto_file import call, event, of_recording, write
from tuimon.errors import TraceError
from tuimon.records import TraceTaken
from tuimon.trace.events import TakenBy
from tuimon.trace.reader import read_trace
from tuimon.trace.summary import record_of, summarize
from tuimon.views.format import count
from tuimon.views.report.report import report_of
from tuimon.views.report.write import text_report
from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.sheets import trace_sheet
from tuimon.views.tui.sheets.trace_sheet import TraceSheet, known_before, trace_lines
from tuimon.views.tui.terminal_app import Capabilities, TerminalApp

MS = 1_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    taken = {"pid": 5, "steps": 4, "wanted": 6, "stop_ms": 187.0, "step_ms": 98.0}
    path = tmp_path_factory.mktemp("trace") / "t.json.gz"
    return write(path, of_recording("resnet50_nw0_a"), tuimon=taken)


def test_what_was_traced_and_how_it_was_taken(recorded: str) -> None:
    lines = [text_of(line) for line in trace_lines(summarize(read_trace(recorded)), 100)]
    assert lines[0] == "4 steps · 177 ms each (before the trace: 98.0 ms)"
    assert any(line.startswith("GPU 0 (Tesla V100) idle 43 % · ") for line in lines)
    assert "held the training up for 187 ms" in " ".join(" ".join(lines).split())
    assert any("6 steps were requested" in line for line in lines)


def test_a_pause_beyond_what_was_allowed_is_said(recorded: str) -> None:
    trace = read_trace(recorded)
    for allowed_ms, said in ((250.0, False), (150.0, True)):
        trace.taken = msgspec.structs.replace(trace.taken, held_limit_ms=allowed_ms)
        text = " ".join(text_of(line) for line in trace_lines(summarize(trace), 100))
        assert ("more than the 150 ms allowed" in text) == said


class _App(TerminalApp[None]):
    """Nothing but the sheet."""


async def lines_of(sheet: Callable[[], TraceSheet], size: tuple[int, int], *keys: str) -> list[str]:
    """What it shows once its work is done and these keys were pressed."""
    app = _App(Capabilities())
    async with app.run_test(size=size) as pilot:
        app.push_screen(found := sheet())
        await pilot.pause()
        await app.workers.wait_for_complete([found.work]) if not found.work.is_finished else None
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        return [text_of(line) for line in found.text.lines]


async def shown(monkeypatch: pytest.MonkeyPatch, take: object, *keys: str) -> list[str]:
    monkeypatch.setattr(TraceSheet, "take", take)
    return await lines_of(lambda: TraceSheet(TakenBy(pid=5)), (80, 24), *keys)


async def test_the_sheet(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = summarize(read_trace(recorded))
    top = await shown(monkeypatch, lambda sheet: taken)
    assert top[0].startswith("4 steps · 177 ms each")
    end = await shown(monkeypatch, lambda sheet: taken, "end")
    assert recorded in "".join(end[-3:]).replace(" ", "")


async def test_a_reason_where_there_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(sheet: TraceSheet) -> None:
        raise TraceError("process 5 refuses it", "restart it")

    lines = await shown(monkeypatch, refuse)
    assert [line for line in lines if line] == ["No trace: process 5 refuses it", "restart it"]


async def test_the_order_is_taken_back_when_it_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done: list[str] = []

    class Waiting:
        is_over, taken, waited_s = False, None, 7.0

        def __init__(self, pid: int, steps: int) -> None:
            done.append(f"{steps} of {pid}")

        def poll(self) -> None:
            """Nothing happens."""

        def close(self) -> None:
            done.append("cancelled")

    monkeypatch.setattr(trace_sheet, "TraceOrder", Waiting)
    app = _App(Capabilities())
    async with app.run_test(size=(80, 24)) as pilot:
        sheet = TraceSheet(TakenBy(pid=5))
        app.push_screen(sheet)
        await pilot.pause()
        sheet.update()
        assert "no backward pass has ended for 7.0s" in " ".join(text_of(line) for line in sheet.text.lines)
        await pilot.press("escape")
        await app.workers.wait_for_complete()
    assert done == ["5 of 5", "cancelled"]


def test_names_from_the_file_are_made_safe(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [event("cpu_op", "\x1b[31mred\x07", 0, 10 * MS)])
    drawn = trace_lines(summarize(read_trace(path)), 80)
    assert "\x1b" not in "".join(text_of(line) for line in drawn)


def traced(path: str) -> TraceTaken:
    trace = read_trace(path)
    trace.taken = TakenBy(pid=5, rank=2, steps=4, wanted=4, begin_s=10.0, end_s=10.4, stop_ms=187.0, step_ms=98.0)
    return msgspec.structs.replace(record_of(summarize(trace)), first_step=1200)


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_log_opens_its_latest_trace(recorded: str, is_there: bool) -> None:
    record = traced(recorded)
    session = session_of(header(), record if is_there else msgspec.structs.replace(record, file="/nowhere/t.json.gz"))
    lines = await lines_of(lambda: trace_sheet.trace_sheet(session, runs=False), (120, 40))
    assert any("Kernels" in line for line in lines) == is_there
    if not is_there:
        assert lines[0].startswith("Trace of ")
        text = " ".join(" ".join(lines).split())
        assert "cannot be read" in text and "GPU idle 43 %" in text
        which = f"Trace of steps {count(1200)} to {count(1203)} of rank 2: 100 ms each (98.0 ms before)"
        assert f"{which}; then the training paused for 187 ms to write it" in text


def test_where_the_cpu_waited_is_in_sheet_and_report(tmp_path: Path) -> None:
    steps = [event("tuimon_step", f"step {n}", 10 * n * MS, 10 * (n + 1) * MS) for n in range(4)]
    waits = [
        each
        for n in range(8)
        for each in (
            event("cpu_op", "aten::nonzero", 5 * n * MS, (5 * n + 3) * MS),
            call("cudaStreamSynchronize", 5 * n * MS, (5 * n + 2) * MS),
        )
    ]
    line = event("tuimon_line", "masked() loss.py:8", 0, 40 * MS)
    path = write(tmp_path / "t.json", [*steps, line, *waits, call("cudaDeviceSynchronize", 38 * MS, 40 * MS)])
    shown = [text_of(line) for line in trace_lines(summarize(read_trace(path)), 100)]
    at = shown.index("Where the CPU waited for the GPU  a step; share of the step")
    assert shown[at + 1] == "   4.0 ms  40 %  aten::nonzero cudaStreamSynchronize · masked() loss.py:8 · 2×"
    assert shown[at + 2] == "  0.50 ms   5 %  cudaDeviceSynchronize · masked() loss.py:8 · 1× in 4 steps"
    report = report_of(session_of(header(), traced(path)), [], "run.jsonl")
    text = " ".join(re.split(r"[ \n]+", text_report(report)))
    assert "the CPU waited 4.0 ms for the GPU in aten::nonzero, 8 times in all, at masked() loss.py:8" in text
    assert "the CPU waited 0.50 ms for the GPU in cudaDeviceSynchronize, once in all, at masked()" in text
    assert to_builtins(report.traces[0].syncs[0]) == {
        "call": "cudaStreamSynchronize", "operator": "aten::nonzero", "phase": "", "where": "masked() loss.py:8",
        "count": 8, "total_ns": 16 * MS,
    }  # fmt: skip


def test_the_length_of_a_step_before_it_is_known() -> None:
    whole = steps(1.0, {"data": 10.0, "backward": 20.0}, count=20)
    before = known_before(one_process(whole), 100)
    assert (before.pid, before.step_ms) == (100, pytest.approx(30.0, rel=0.01))
