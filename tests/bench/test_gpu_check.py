"""What ``make gpu-check`` does and computes, on literal traces and stand-ins: the hardware itself is not here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench import overhead
from bench.gpu import __main__ as gpu_check
from bench.gpu import gpu_tests, limits, parts, requirements, steps_cost
from bench.gpu.against_profiler import Truth, compared, truth_of
from bench.gpu.rows import FILE, Rows, tables
from bench.table import Row, Spread
from tests.waiting import until
from tuimon.records import GpuPhase, GpuTime, Lead

ROOT = Path(__file__).resolve().parents[2]


def launch(correlation: int, at: float) -> dict[str, object]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 5, "args": args}


def kernel(correlation: int, begin: float, duration: float) -> dict[str, object]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "kernel", "name": "gemm", "ts": begin, "dur": duration, "args": args}


def phase(name: str, begin: float, end: float) -> dict[str, object]:
    return {"ph": "X", "cat": "user_annotation", "name": f"truth:{name}", "ts": begin, "dur": end - begin}


def test_the_gpu_comes_to_a_boundary_when_what_was_launched_before_it_is_done() -> None:
    events = [
        phase("forward", 0, 20),
        phase("backward", 20, 40),
        phase("optimizer", 40, 50),
        launch(1, 5),
        kernel(1, 10, 100),
        launch(2, 25),
        kernel(2, 110, 200),
        launch(3, 45),
        kernel(3, 310, 30),
        {"ph": "M", "name": "process_name"},
    ]
    truth = truth_of(events)
    assert truth.span_us == {"forward": 110.0, "backward": 200.0, "optimizer": 30.0}
    assert truth.lead_us == {"forward": 90.0, "backward": 270.0, "optimizer": 290.0}


def test_an_idle_gpu_comes_to_a_boundary_with_the_cpu() -> None:
    events = [phase("forward", 0, 100), launch(1, 5), kernel(1, 10, 20), phase("backward", 100, 300)]
    truth = truth_of(events)
    assert truth.span_us["forward"] == 100.0
    assert truth.lead_us == {"forward": 0.0, "backward": 0.0}


def test_a_python_without_any_package_ends_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "bench.gpu"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "gpu-check: skipped, torch is not installed\n"


def test_what_is_missing_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "no_gpu", lambda: None)
    monkeypatch.setattr(requirements, "_is_installed", lambda name: name not in ("psutil", "pytest-timeout"))
    monkeypatch.setattr(sys, "argv", ["gpu-check"])
    assert gpu_check.main() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("gpu-check: not installed: psutil>=5.9,<8, pytest-timeout>=2.3,<3. ")
    assert "-m pip install 'psutil>=5.9,<8' 'pytest-timeout>=2.3,<3';" in line


# -- compared with the profiler


def timed(span_ns: int, lead_us: float | None = None) -> GpuTime:
    phases = [GpuPhase("forward", span_ns, 0, 0)] if span_ns else []
    leads = [Lead("backward begin", 1, lead_us, lead_us, lead_us, 0)] if lead_us is not None else []
    return GpuTime(t=2.0, pid=1, window_s=1.0, device=0, steps=3, total_ns=span_ns, phases=phases, leads=leads)


TRUTH = Truth({"forward": 50.0, "backward": 50.0, "optimizer": 0.0}, {"forward": 0.0})


def test_shares_are_compared_and_a_lead_of_nothing_divides_nothing() -> None:
    rows = {row.what.partition("torch.profiler: ")[2]: row for row in compared("small", TRUTH, [timed(10**6, 75.0)])}
    forward = rows["share of GPU time in forward, 3 steps"].measured
    lead = rows["median lead at backward begin (it is 0 us)"].measured
    assert forward is not None and forward.median == 50.0
    assert lead is not None and lead.median == 150.0


@pytest.mark.parametrize(
    ("truth", "records", "why"),
    [
        (TRUTH, [], "no GPU time in 0 steps that were timed"),
        (TRUTH, [timed(0)], "no GPU time in 3 steps that were timed"),
        (Truth(dict.fromkeys(TRUTH.span_us, 0.0), {}), [timed(10**6)], "torch.profiler has seen no kernel"),
    ],
)
def test_without_a_time_on_either_side_there_is_one_row_that_says_so(
    truth: Truth, records: list[GpuTime], why: str
) -> None:
    (row,) = compared("small", truth, records)
    assert (row.measured, row.why_absent) == (None, why)


# -- limits


def test_all_parts_together_take_four_minutes_at_most_and_each_a_minute() -> None:
    assert tuple(limits.LIMITS) == gpu_check.PARTS
    left_s = 240.0
    for done, part in enumerate(gpu_check.PARTS):
        limit_s = limits.limit_s(part, gpu_check.PARTS[done:], left_s, quick=True)
        assert 5.0 < limit_s <= 60.0
        left_s -= limit_s
    assert left_s > 0.0


@pytest.mark.parametrize(
    ("command", "ending"),
    [("exit 0", None), ("exit 3", "ended with exit code 3"), ("kill -SEGV $$", "ended by SIGSEGV")],
)
def test_how_a_part_has_ended(command: str, ending: str | None) -> None:
    assert limits.run(["sh", "-c", command], 60.0) == ending


@pytest.mark.parametrize("last", ["wait", "sleep 1; kill -KILL $$"])
def test_a_part_ends_with_all_that_it_has_started(last: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is cut off, and one that dies."""
    monkeypatch.setattr(limits, "LOOK_S", 0.05)
    started = tmp_path / "started"
    ending = limits.run(["sh", "-c", f"setsid sleep 1000 & echo $! >{started}; {last}"], 2.0)
    assert ending == ("cut off after 2 s" if last == "wait" else "ended by SIGKILL")
    pid = int(started.read_text())
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


# -- rows


def test_rows_are_written_as_they_come_and_a_part_that_breaks_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(part: str, effort: parts.Effort, say: object) -> Iterator[Row]:
        assert (part, effort) == ("syncs", parts.Effort(9.0, True, tmp_path, None))
        yield Row("first", 0, Spread.of([1]))
        assert json.loads((tmp_path / FILE).read_text())["cells"][0] == "first"
        assert "syncs  first  <= 0   1" in capsys.readouterr().err
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(parts, "rows", rows)
    monkeypatch.setattr(gpu_check.signal, "signal", lambda *_: None)
    assert gpu_check.check_part("syncs", tmp_path, 9.0, None, quick=True) == 0
    lines = tables(tmp_path).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["first", "syncs"]
    assert lines[-1].endswith("RuntimeError: CUDA error: unspecified launch failure")


def test_a_part_that_is_cut_off_is_in_the_table_with_what_it_has_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits_s = []

    def run(command: list[str], limit_s: float) -> str | None:
        part = command[command.index("--only") + 1]
        assert command[-1] == "--quick" and float(command[command.index("--limit") + 1]) == pytest.approx(
            limit_s, abs=0.1
        )
        limits_s.append(limit_s)
        Rows(tmp_path, part).add(Row(f"of {part}", None, Spread.of([1])))
        if part == "clock":
            raise KeyboardInterrupt
        return "cut off after 12 s" if part == "syncs" else None

    monkeypatch.setattr(limits, "run", run)
    monkeypatch.setattr(gpu_check, "place", lambda: "a GPU")
    monkeypatch.setattr(gpu_check.signal, "signal", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        gpu_check.check(tmp_path, ["clock", "syncs", "nvml", "demos"], 0.0, float("inf"), ["--quick"], quick=True)
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "a GPU"
    assert [line.split("  ")[0] for line in printed.splitlines()[3:]] == ["of nvml", "of syncs", "syncs", "of clock"]
    assert "cut off after 12 s" in printed
    assert len(limits_s) == 3
    assert "of syncs" in (tmp_path / "table.txt").read_text()


def test_tests_are_counted_while_they_run() -> None:
    said: list[str] = []
    lines = [
        "tests/gpu/test_cuda_events.py::test_nothing_synchronises PASSED [  6%]\n",
        "tests/gpu/test_cuda_events.py::test_checkpointing[False] FAILED [ 12%]\n",
        "tests/gpu/test_cuda_events.py::test_compiled_with_graphs SKIPPED (no triton) [ 20%]\n",
        "E   assert 4 == 6\n",
        "FAILED tests/gpu/test_cuda_events.py::test_checkpointing[False]\n",
    ]
    rows = [keyed.row for keyed in gpu_tests.counted(lines, said.append)]
    assert [row.measured.median for row in rows if row.measured] == [0, 1, 1]
    assert rows[-1].what == "gpu tests that fail, of 3, 1 of them skipped"
    assert "E   assert 4 == 6" in said[-1]
    (none,) = gpu_tests.counted(["ERROR: file or directory not found: tests/gpu\n"], said.append)
    assert none.row.why_absent == "ERROR: file or directory not found: tests/gpu"


# -- the cost of steps


class StandIn:
    """A trainee whose steps take 1 ms, and 1.5 ms under tuimon."""

    fails: tuple[str, ...] = ()

    def __init__(self, variant: overhead.Variant) -> None:
        self.variant = variant
        if variant.name in self.fails:
            raise RuntimeError("no torch")

    def block(self, loop: str, seconds: float) -> float:
        return 1.5e6 if self.variant is overhead.TUIMON else 1e6

    def pause(self) -> None: ...

    resume = close = pause


@pytest.mark.parametrize("fails", [(), ("plain",), ("tuimon run",)])
def test_the_cost_of_steps_has_a_row_for_each_loop_as_soon_as_it_is_measured(
    fails: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overhead, "Trainee", StandIn)
    monkeypatch.setattr(StandIn, "fails", fails)
    rows = list(steps_cost.measure(1.0, 0.0, lambda _: None))  # no time for a second round
    assert [key for key, _ in rows] == list(overhead.CUDA_PROMISES)
    for _, row in rows:
        assert (row.measured.median if row.measured else row.why_absent) == ("no torch" if fails else 1.5)
