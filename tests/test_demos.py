"""The demos run by themselves, and tuimon's numbers agree with those they measure themselves."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.programs import environment
from tests.warm_torch import warm_python

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "demo"

#: points of share by which tuimon and the script may differ
TOLERANCE = 0.12


def run(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def demo(name, *args, expected=0):
    done = warm_python(str(DEMO / name), *args, env=environment(None), cwd=ROOT)
    assert done.returncode == expected, done.stdout[-2000:] + done.stderr[-4000:]
    return done


@pytest.mark.parametrize("feed", [(), ("--workers", "1")])
def test_mnist_like_learns(tmp_path, feed):
    truth = tmp_path / "truth.json"
    options = ("--steps", "60", "--threads", "1", "--batch-size", "32", "--truth", str(truth))
    out = demo("mnist_like.py", *options, *feed).stdout.splitlines()
    losses = [float(line.split()[-1]) for line in out if "loss" in line]
    assert losses[-1] < losses[0]
    assert any("test accuracy" in line for line in out)
    told = json.loads(truth.read_text())
    assert told["steps"] == 60
    assert told["eval_s"] > 0
    assert sum(told["shares"].values()) == pytest.approx(1)


def test_mnist_like_says_why_there_is_no_gpu():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        assert "done: 5 steps" in demo("mnist_like.py", "gpu", "--steps", "5").stdout
    else:
        assert "cannot train on a GPU" in demo("mnist_like.py", "gpu", expected=1).stderr


def test_two_trainings_report_both(tmp_path):
    truth = tmp_path / "truth.json"
    out = demo("two_trainings.py", "--threads", "1", "--steps", "20", "--truth", str(truth)).stdout
    assert "2 threads on" in out
    told = json.loads(truth.read_text())
    assert {name: told[name]["steps"] for name in told} == {"first": 20, "second": 20}


def watched(tmp_path, name, *args):
    """What tuimon reports of a demo, and what the demo says of itself."""
    log, truth = tmp_path / "run.jsonl", tmp_path / "truth.json"
    tuimon = [sys.executable, "-m", "tuimon"]
    script = [sys.executable, str(DEMO / name), *args, "--truth", str(truth)]
    run(*tuimon, "run", "--headless", "--log", str(log), "--", *script)
    report = json.loads(run(*tuimon, "report", str(log), "--format", "json").stdout)
    return report, json.loads(truth.read_text())


def test_slow_loader_is_input_bound_at_augment(tmp_path):
    report, truth = watched(tmp_path, "slow_loader.py", "--workers", "2", "--seconds", "9")
    first = report["findings"][0]
    assert first["rule"] == "input_bound"
    assert first["severity"] in {"critical", "warning"}
    assert any(
        place["file"].endswith("slow_loader.py") and place["function"] == "augment" for place in first["where"]
    ), first
    found = {row["name"]: row["share"] for row in report["phases"]}
    for phase, share in truth["shares"].items():
        assert found.get(phase, 0.0) == pytest.approx(share, abs=TOLERANCE), (phase, found, truth)
    # Steps of two workers lie far apart, and each clock cuts one of them elsewhere: the medians may lie between others.
    span = report["span"]
    steps_ms = sorted(truth["step_ms"][span["first_step"] : span["last_step"] + 1])  # by the demo's own clock
    between = [steps_ms[round(share * (len(steps_ms) - 1))] for share in (0.45, 0.55)]
    assert 0.99 * between[0] <= report["steps"]["median_ms"] <= 1.01 * between[1]
    mean_ms = sum(phase["cpu_ms_per_step"] for phase in report["phases"] if phase["name"] != "eval")
    assert mean_ms == pytest.approx(statistics.fmean(steps_ms), rel=0.05)


def test_healthy_mnist_like_has_nothing_to_complain_of(tmp_path):
    # Without a DataLoader no marker tells evaluation from side work, so evaluation would count as other.
    options = ("--threads", "1", "--seconds", "7", "--epochs", "1000", "--eval-every", "0")
    report, truth = watched(tmp_path, "mnist_like.py", *options)
    found = {row["name"]: row["share"] for row in report["phases"]}
    for phase, share in truth["shares"].items():
        assert found.get(phase, 0.0) == pytest.approx(share, abs=TOLERANCE), (phase, found, truth)
    loud = [finding for finding in report["findings"] if finding["severity"] in {"critical", "warning"}]
    assert {finding["rule"] for finding in loud} <= {"neighbour"}  # other programs may hold this machine's cores
