"""Starts trainings, alone and under tuimon; what is left of one when it is over is ended by its process id."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

TUIMON = (sys.executable, "-m", "tuimon")
#: A program prints this, on a line of its own, when its first step has ended.
TRAINING = "training"
#: Seconds of training before tuimon attaches.
BEFORE_S = 8.0
#: Seconds that tuimon may take to attach.
_COMING_S = 3.0
_LIMIT_S = 300.0
_TICKS_S = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A program, or tuimon, did not end well; the text is its output."""


@dataclass(frozen=True)
class Truth:
    """A program's own measurement, which it prints as JSON in a line."""

    steps: int
    step_ms: float
    shares: dict[str, float]  # of the steps' time; "eval" beside them
    pid: int | None = None  # the training's, if the program tells it: it may start several
    pieces: dict[str, float] = field(default_factory=dict)  # pieces of work within a phase, of the steps' time
    in_model: dict[str, float] = field(default_factory=dict)  # the same, of the forward pass
    in_evaluation: dict[str, float] = field(default_factory=dict)  # the same, of "eval"
    #: Once a second: when a step ended (s, monotonic clock), and the seconds of each part until then.
    course: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    @property
    def wall_ms(self) -> float:
        """The time of a step and its part of the evaluation."""
        return self.step_ms * (1 + self.shares.get("eval", 0.0))


@dataclass(frozen=True)
class Outcome:
    """A finished run: the truth, the log, and how many cores other programs took meanwhile."""

    truth: Truth
    log: Path
    others_cores: float = 0.0


class Ran(NamedTuple):
    """What a program has printed, and how many cores other programs took meanwhile."""

    output: str
    others_cores: float


def watched(name: str, command: Sequence[str], folder: Path) -> Outcome:
    """A program under ``tuimon run``. Raises Failed."""
    log = folder / f"{name}.jsonl"
    return _outcome(recorded(log, command), log)


def recorded(log: Path, command: Sequence[str], *options: str, **of_popen: Any) -> Ran:
    """A program under ``tuimon run`` with this log, if that is not there yet. Raises Failed."""

    def measure() -> Ran:
        with _others() as cores:
            output = finished([*under_tuimon(log, *options), *command], **of_popen)
        return Ran(output, cores[0])

    return Ran(*kept(log.with_suffix(".json"), measure))


def attached(
    name: str, command: Callable[[float], Sequence[str]], seconds: float, folder: Path, options: Sequence[str] = ()
) -> Outcome:
    """A program alone, to which tuimon attaches after ``BEFORE_S`` of steps, for its last ``seconds``. Raises Failed.

    ``command`` makes the program's command from the seconds that it trains.
    """
    log, output = folder / f"{name}.attached.jsonl", folder / f"{name}.attached.out"

    def measure() -> Ran:
        with (
            _others() as cores,
            output.open("w") as file,
            started(command(BEFORE_S + _COMING_S + seconds), stdout=file, stderr=subprocess.STDOUT) as program,
        ):
            while not has_begun(output.read_text()):
                if program.poll() is not None:
                    raise Failed(f"it ended before its second step\n{output.read_text()[-3000:]}")
                time.sleep(0.1)
            time.sleep(BEFORE_S)
            finished([*TUIMON, "attach", "--headless", "--force", *options, "--log", str(log), str(program.pid)])
            if program.wait(_LIMIT_S):
                raise Failed(f"exit code {program.returncode}\n{output.read_text()[-3000:]}")
        return Ran(output.read_text(), cores[0])

    return _outcome(Ran(*kept(log.with_suffix(".json"), measure)), log)


def _outcome(ran: Ran, log: Path) -> Outcome:
    return Outcome(truth_of(ran.output), log, ran.others_cores)


def gained_by(name: str, as_it_is: Sequence[str], changed: dict[str, Sequence[str]], folder: Path) -> dict[str, float]:
    """By name: how much faster a changed command's steps are than those of the command as it is. Raises Failed.

    All without tuimon, which takes cores that a crowded training wants; the command as it is runs before the others and
    after them, so that what the machine does beside counts for both.
    """

    def measure() -> dict[str, float]:
        commands = (as_it_is, *changed.values(), as_it_is)
        first, *walls_ms, last = (truth_of(finished(command)).wall_ms for command in commands)
        return {name: (first + last) / 2 / wall_ms for name, wall_ms in zip(changed, walls_ms, strict=True)}

    return dict(kept(folder / f"{name}.gained.json", measure))


def kept(path: Path, measure: Callable[[], Any]) -> Any:
    """The measurement of an earlier run, as JSON; measured now if there is none."""
    if not path.exists():
        fresh = path.with_suffix(".part")
        fresh.write_text(json.dumps(measure()))
        fresh.rename(path)
    return json.loads(path.read_text())


def under_tuimon(log: Path, *options: str) -> list[str]:
    """The words before a command that ``tuimon run`` starts."""
    return [*TUIMON, "run", "--headless", "--force", *options, "--log", str(log), "--"]


def finished(command: Sequence[str], limit_s: float = _LIMIT_S, **options: Any) -> str:  # options of Popen
    """The standard output of a command. Raises Failed if it takes too long or its exit code is not 0."""
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end after {limit_s:g} s: {' '.join(command)}") from None
    if process.returncode:
        raise Failed(f"exit code {process.returncode}\n{output[-1000:]}\n{errors[-3000:]}")
    return output


@contextlib.contextmanager
def started(command: Sequence[str], log: Path | None = None, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process in a session of its own; in the end it, its group and what ``log`` says it started are ended."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options)
    try:
        yield process
    finally:
        if process.poll() is None and log is not None:
            _end_politely(process, log)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _end_politely(process: subprocess.Popen[Any], log: Path) -> None:
    """End a training, and let tuimon, which has its log, end by itself."""
    running = set()
    for line in log.read_text().splitlines() if log.exists() else ():
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if record.get("type") == "process":
                (running.discard if record.get("ended") else running.add)(record["pid"])
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)


def has_begun(output: str) -> bool:
    """True if a program has told that its first step ended, be it behind a progress bar."""
    return any(line.endswith(TRAINING) for line in output.splitlines())


def truth_of(output: str) -> Truth:
    """The measurement in a program's output. Raises Failed."""
    told = ['{"steps"' + line.partition('{"steps"')[2] for line in output.splitlines() if '{"steps"' in line]
    if not told:
        raise Failed(f"it told no truth\n{output[-3000:]}")
    return Truth(**json.loads(told[0]))


@contextlib.contextmanager
def _others() -> Iterator[list[float]]:
    """How many cores programs other than ours and its children take meanwhile, once it is over."""
    cores: list[float] = []
    busy_s, own_s, begin = _busy_s(), _own_s(), time.monotonic()
    yield cores
    others_s = (_busy_s() - busy_s) - (_own_s() - own_s)
    cores.append(max(0.0, others_s / (time.monotonic() - begin)))


def _busy_s() -> float:
    """CPU seconds that all programs of the machine have used."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS_S


def _own_s() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system + spent.user + spent.system
