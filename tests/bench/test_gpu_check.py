"""What ``make gpu-check`` computes, on literal traces: the hardware itself is not here."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import __main__ as gpu_check
from bench.gpu import requirements
from bench.gpu.against_profiler import truth_of

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


def test_without_a_gpu_it_says_so_and_ends_well() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("gpu-check: skipped, torch")


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


def test_the_wheels_are_all_that_tuimon_needs_and_what_its_gpu_tests_need() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = list(requirements.requirements().values())
    assert found[: len(project["dependencies"])] == project["dependencies"]
    assert set(found[len(project["dependencies"]) :]) <= set(project["optional-dependencies"]["test"])
    assert len(found) == len(project["dependencies"]) + 4
