"""Hooks brought into trainings of awkward shapes and withdrawn, again and again: is none harmed?"""

import argparse
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tests.agent.programs import environment
from tests.truth.kind import Column, Kind
from tests.truth.running import finished
from tests.waiting import until
from tests.warm_torch import WarmProgram
from tuimon.agent.ring import files
from tuimon.agent.ring.reader import RingReader
from tuimon.errors import TuimonError
from tuimon.launch.inject import inject
from tuimon.sources.control_channel import withdraw_hooks

#: How long each shape does what it does in a step, in seconds.
SHAPES = {"kernel": 0.02, "sleep": 0.05, "extension": 5.0, "fork": 0.0, "threads": 0.02}
SCRIPT = Path(__file__).with_name("trainings") / "inject.py"
#: Injections into one training.
_EACH = 10
_END_S = 90


@dataclass
class Trial:
    """One training with its injections, and what it came to; times in seconds."""

    shape: str
    steps: int = 0
    digest: int = 0
    faults: list[str] = field(default_factory=list)
    first_marker_s: list[float] = field(default_factory=list)
    pause_s: list[float] = field(default_factory=list)  # longest step at an injection, beyond the median step
    control_s: list[float] = field(default_factory=list)  # the same in as long a time without one


class Shape(NamedTuple):
    """A case: trainings of one shape, and what each does in a step, in seconds."""

    name: str
    seconds: float


@dataclass
class Stressed:
    """A row: the trials of a shape, how many trainings came to the right weights, and injections they had."""

    shape: str
    trials: list[Trial]
    same: int

    def times(self, name: str) -> list[float]:
        """All of one kind, in order."""
        return sorted(value for trial in self.trials for value in getattr(trial, name))

    @property
    def faults(self) -> list[str]:
        return [fault for trial in self.trials for fault in trial.faults]


def _quantiles(name: str, scale: float, digits: int) -> Callable[[Stressed], str | None]:
    """A cell: median and 99th percentile."""

    def text(row: Stressed) -> str | None:
        values = row.times(name)
        at = [values[min(len(values) - 1, int(len(values) * share))] * scale for share in (0.5, 0.99) if values]
        return " / ".join(f"{value:.{digits}f}" for value in at) or None

    return text


class Inject(Kind[Shape, Stressed]):
    """Hooks brought into trainings of awkward shapes and withdrawn, again and again: is none harmed?"""

    columns = (
        Column("shape", 10, lambda row: row.shape),
        Column("trainings", -9, lambda row: len(row.trials)),
        Column("injections", -10, lambda row: len(row.times("first_marker_s"))),
        Column("same result", -11, lambda row: f"{row.same} of {len(row.trials)}"),
        Column("faults", -6, lambda row: len(row.faults)),
        Column("first marker p50 / p99 s", -24, _quantiles("first_marker_s", 1, 2)),
        Column("pause p50 / p99 ms", -18, _quantiles("pause_s", 1e3, 0)),
        Column("control p50 / p99 ms", -20, _quantiles("control_s", 1e3, 0)),
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-n", type=int, default=300, metavar="N", help="injections in all (default %(default)s)")
        parser.add_argument("--seed", type=int, default=1)

    def cases(self, args: argparse.Namespace) -> Sequence[Shape]:
        return [Shape(*shape) for shape in SHAPES.items()]

    def judged(self, case: Shape, args: argparse.Namespace) -> Iterator[Stressed]:
        os.environ["TUIMON_RING_DIR"] = str(args.folder / "rings")
        of_shape = args.n / len(args.names or SHAPES)
        rounds = max(1, round(of_shape / _EACH))
        each = max(1, round(of_shape / rounds))
        found = [run_trial(case.name, case.seconds, each, args.seed + number, start) for number in range(rounds)]
        digests = expected(max(1, *(trial.steps for trial in found)))
        same = sum(trial.steps > 0 and digests[trial.steps - 1] == trial.digest for trial in found)
        yield Stressed(case.name, found, same)

    def totals(self, rows: Sequence[Stressed]) -> list[str]:
        return [f"{row.shape}: {fault}" for row in rows for fault in row.faults] or ["no faults"]

    def passed(self, rows: Sequence[Stressed]) -> bool:
        return all(row.same == len(row.trials) and not row.faults for row in rows)


def expected(steps: int) -> list[int]:
    """The checksums of a training that nothing is done to."""
    command = [sys.executable, str(SCRIPT), "plain", str(steps)]
    return list(json.loads(finished(command, env=environment(None)).splitlines()[-1]))


Process = subprocess.Popen[bytes] | WarmProgram
#: Starts a Python program of these words on these standard streams.
Start = Callable[[list[str], list[int]], Process]


def start(words: list[str], streams: list[int]) -> Process:
    """In an interpreter of its own."""
    stdin, stdout, stderr = streams
    return subprocess.Popen([sys.executable, *words], env=environment(None), stdin=stdin, stdout=stdout, stderr=stderr)


def run_trial(shape: str, seconds: float, injections: int, seed: int, start: Start) -> Trial:
    trial, drawn = Trial(shape), random.Random(f"{seed} {shape}")
    windows: list[tuple[int, int]] = []
    with _training([str(SCRIPT), shape, str(seconds)], start) as (process, stdin, out, err):
        for _ in range(injections):
            time.sleep(drawn.uniform(0.3, 0.6))
            windows.append(_inject_once(process.pid, trial))
            time.sleep(drawn.uniform(0.0, 0.1))
            with _faults(trial, "withdrawal"):
                withdraw_hooks(process.pid, _END_S)  # once a backward pass has ended
        stdin.write(b"end\n")
        try:
            until(lambda: process.poll() is not None, "the end", _END_S)
        except AssertionError:
            trial.faults.append("hung")
            return trial
        for file in (out, err):
            file.seek(0)  # until then the position was the training's, too
        errors = err.read()
        if process.poll() or errors:
            trial.faults.append(f"exit code {process.poll()}: {errors[-300:].decode()}")
            return trial
        result = json.loads(out.read().splitlines()[-1])
    _judge_pauses(trial, result["ends_ns"], windows)
    trial.steps, trial.digest = result["steps"], result["digest"]
    return trial


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
        reader = RingReader(files.ring_path(pid))
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
