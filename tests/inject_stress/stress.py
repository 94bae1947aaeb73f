"""Brings hooks into trainings and withdraws them, and measures what they notice."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.agent.programs import environment
from tuimon.agent.ring import paths
from tuimon.agent.ring.reader import RingReader
from tuimon.errors import TuimonError
from tuimon.launch.injection.inject import inject
from tuimon.sources.control.channel import withdraw_hooks

#: What each shape does in a step, in seconds.
SHAPES = {"kernel": 0.02, "sleep": 0.05, "extension": 5.0, "fork": 0.0, "threads": 0.02}
SCRIPT = Path(__file__).with_name("training.py")
_END_S = 90


@dataclass
class Trial:
    """One training with its injections; times in seconds."""

    shape: str
    faults: list[str] = field(default_factory=list)
    first_marker_s: list[float] = field(default_factory=list)
    pause_s: list[float] = field(default_factory=list)  # longest step at an injection, beyond the median step
    control_s: list[float] = field(default_factory=list)  # the same in as long a time without one


def expected(steps: int, python: str, env: dict[str, str]) -> list[int]:
    """The checksums of a training that nothing is done to."""
    command = [python, str(SCRIPT), "plain", str(steps)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def run_trial(
    shape: str,
    seconds: float,
    injections: int,
    seed: int,
    python: str = sys.executable,
    env: dict[str, str] | None = None,
) -> tuple[Trial, int, int]:
    """The trial, and the steps and the checksum that its training came to."""
    trial, drawn = Trial(shape), random.Random(f"{seed} {shape}")
    windows: list[tuple[int, int]] = []
    command = [python, str(SCRIPT), shape, str(seconds)]
    process = subprocess.Popen(command, env=env or environment(None), stdin=-1, stdout=-1, stderr=-1, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        for _ in range(injections):
            time.sleep(drawn.uniform(0.3, 0.6))
            windows.append(_inject_once(process.pid, trial))
            time.sleep(drawn.uniform(0.0, 0.1))
            with _faults(trial, "withdrawal"):
                withdraw_hooks(process.pid, 10 + 2 * seconds)
        out, err = process.communicate("end\n", timeout=_END_S)
        if process.returncode or err:
            trial.faults.append(f"exit code {process.returncode}: {err[-300:]}")
            return trial, 0, 0
        result = json.loads(out.splitlines()[-1])
        _judge_pauses(trial, result["ends_ns"], windows)
        return trial, result["steps"], result["digest"]
    except subprocess.TimeoutExpired:
        trial.faults.append("hung")
        return trial, 0, 0
    finally:
        process.kill()
        process.communicate()


def _inject_once(pid: int, trial: Trial) -> tuple[int, int]:
    """Bring the hooks in and wait for the first marker; from when to when, on the monotonic clock in ns."""
    begun_ns = time.monotonic_ns()
    with _faults(trial, "injection"):
        inject(pid)
        answered_ns = time.monotonic_ns()
        reader = RingReader(paths.ring_path(pid))
        while not any(True for _ in reader.read()):
            if time.monotonic_ns() - begun_ns > _END_S * 1e9:
                raise TuimonError("no marker")
            time.sleep(0.002)
        reader.close()
        trial.first_marker_s.append((time.monotonic_ns() - begun_ns) / 1e9)
        return begun_ns, answered_ns
    return begun_ns, begun_ns


@contextlib.contextmanager
def _faults(trial: Trial, what: str) -> Iterator[None]:
    try:
        yield
    except (TuimonError, OSError) as error:
        trial.faults.append(f"{what}: {error}")


def _judge_pauses(trial: Trial, ends_ns: list[int], windows: list[tuple[int, int]]) -> None:
    steps = list(itertools.pairwise(ends_ns))
    usual_ns = sorted(end - begin for begin, end in steps)[len(steps) // 2]
    for begun_ns, ended_ns in windows:
        before_ns = begun_ns - (ended_ns - begun_ns)
        trial.pause_s.append(_longest(steps, begun_ns, ended_ns, usual_ns))
        trial.control_s.append(_longest(steps, before_ns, begun_ns, usual_ns))


def _longest(steps: list[tuple[int, int]], begin_ns: int, end_ns: int, usual_ns: int) -> float:
    within = [end - begin for begin, end in steps if end > begin_ns and begin < end_ns]
    return max(0.0, (max(within, default=usual_ns) - usual_ns) / 1e9)


def rings_folder(folder: Path) -> None:
    """Use this folder for rings in this process."""
    os.environ["TUIMON_RING_DIR"] = str(folder)
