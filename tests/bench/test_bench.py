"""The pure parts of bench/: tables, statistics, CPU time, and what is checked on a GPU."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench import monitor_cost, processes
from bench.gpu import __main__ as gpu_check
from bench.gpu import limits, parts, program_runs
from bench.gpu.against_profiler import truth_of
from bench.gpu.rows import FILE, Rows, tables
from bench.table import Row, Spread
from tests import waiting
from tests.agent.programs import environment
from tests.waiting import until
from tests.warm_torch import warm_python
from tuimon.diagnosis.rulebook import BY_NAME


def test_py_spy_is_no_part_of_the_training_and_of_the_monitor(tmp_path: object) -> None:
    training = f"{tmp_path}/training.py"
    with open(training, "w") as file:
        file.write("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'input()'])\n")
    case = monitor_cost.Case("a training", (training,))
    monitor = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, sys.argv[1]], stdin=0)\n"
        "beside = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0)\n"
        "print(beside.pid, flush=True)\nbeside.wait()\n"
    )
    command = [sys.executable, "-c", monitor, training]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        beside = int(process.stdout.readline())
        waiting.until(lambda: len(processes.descendants(process.pid)) == 3)
        assert monitor_cost.watchers(process.pid, case) == [beside]
        process.stdin.write("\n\n\n")
        process.stdin.close()
        for pid in processes.descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):  # they are ending anyhow
                os.kill(pid, 9)


@pytest.mark.torch
@pytest.mark.parametrize("form", ["as it is", "fixed"])
@pytest.mark.parametrize("program", program_runs.names())
def test_each_trains_on_the_cpu(program: str, form: str) -> None:
    pytest.importorskip("torch")
    words = [str(program_runs.FOLDER / f"{program}.py"), "--seconds", "0.1", *(["--fixed"] if form == "fixed" else [])]
    done = warm_python(*words, env=environment(None))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" ms a step")


@pytest.mark.torch
def test_one_under_tuimon_and_its_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    run = program_runs.watched.run

    def run_warm(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        return run(command, timeout_s) if "-m" in command else warm_python(*command[1:], env=environment(None))

    monkeypatch.setattr(program_runs.watched, "run", run_warm)
    seen, measured = program_runs.measure(1.0, 0.1, 1e9, tmp_path, lambda _: None, ["masked_loss"])
    assert (tmp_path / "masked_loss.jsonl").stat().st_size
    assert seen.means is None and seen.remark == ""
    assert measured.means is not None and min(measured.means) > 0.0
    assert measured[:5] == seen[:5] and measured.remark == ""


def test_what_an_expert_would_name_are_rules() -> None:
    assert len(program_runs.names()) >= 14
    for program in program_runs.names():
        assert {*program_runs.expected(program).split(" or ")} <= {*BY_NAME, "none"}


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


# -- limits


def test_all_parts_together_take_four_minutes_at_most_and_each_a_minute() -> None:
    assert tuple(limits.LIMITS) == gpu_check.PARTS
    left_s = 240.0
    for done, part in enumerate(gpu_check.PARTS):
        limit_s = limits.limit_s(part, gpu_check.PARTS[done:], left_s, quick=True)
        assert 5.0 < limit_s <= 60.0
        left_s -= limit_s
    assert left_s > 0.0


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
