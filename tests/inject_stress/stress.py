"""Brings hooks into trainings and withdraws them, and measures what they notice."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from tests.waiting import until
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


class Process(Protocol):
    """A training that runs."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def kill(self) -> None:
        """End it."""


#: Starts a Python program of these words on these standard streams.
Start = Callable[[list[str], list[int]], Process]


def starting(python: str, env: dict[str, str]) -> Start:
    """In an interpreter of its own."""

    def start(words: list[str], streams: list[int]) -> Process:
        stdin, stdout, stderr = streams
        return subprocess.Popen([python, *words], env=env, stdin=stdin, stdout=stdout, stderr=stderr)

    return start


def run_trial(shape: str, seconds: float, injections: int, seed: int, start: Start) -> tuple[Trial, int, int]:
    """The trial, and the steps and the checksum that its training came to."""
    trial, drawn = Trial(shape), random.Random(f"{seed} {shape}")
    windows: list[tuple[int, int]] = []
    with _training([str(SCRIPT), shape, str(seconds)], start) as (process, stdin, out, err):
        for _ in range(injections):
            time.sleep(drawn.uniform(0.3, 0.6))
            windows.append(_inject_once(process.pid, trial))
            time.sleep(drawn.uniform(0.0, 0.1))
            with _faults(trial, "withdrawal"):
                withdraw_hooks(process.pid, 10 + 2 * seconds)
        stdin.write(b"end\n")
        try:
            until(lambda: process.poll() is not None, "the end", _END_S)
        except AssertionError:
            trial.faults.append("hung")
            return trial, 0, 0
        for file in (out, err):
            file.seek(0)  # until then the position was the training's, too
        errors = err.read()
        if process.poll() or errors:
            trial.faults.append(f"exit code {process.poll()}: {errors[-300:].decode()}")
            return trial, 0, 0
        result = json.loads(out.read().splitlines()[-1])
    _judge_pauses(trial, result["ends_ns"], windows)
    return trial, result["steps"], result["digest"]


@contextlib.contextmanager
def _training(words: list[str], start: Start) -> Iterator[tuple[Process, BinaryIO, BinaryIO, BinaryIO]]:
    """A training that is ready, its standard input, and the files of its output and its errors."""
    read_end, write_end = os.pipe()
    with (
        open(read_end, "rb") as theirs,
        open(write_end, "wb", buffering=0) as stdin,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        process = start(words, [theirs.fileno(), out.fileno(), err.fileno()])
        try:
            until(lambda: os.pread(out.fileno(), 6, 0) == b"ready\n", "the training", _END_S)
            yield process, stdin, out, err
        finally:
            process.kill()
            until(lambda: process.poll() is not None)


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
