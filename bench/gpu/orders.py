"""What tuimon asks of a running training: a trace, the allocator's history, its hooks brought in, its own stacks.

Each check prints what it saw of a training on the GPU; one that saw nothing says why.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.records import GpuTime, MemoryHistory, Record, Stacks, Steps
from tuimon.sources.log.reader import read_log

ROOT = Path(__file__).resolve().parents[2]
LOOP = ("bench/gpu/loop.py",)
#: Runs a command that may not read the memory of other processes.
DENIED = "tests/sources/stacks/denied.py"
TUIMON = (sys.executable, "-m", "tuimon")
_HEADLESS = ("--headless", "--force", "--log")
_TIMEOUT_S = 90.0
#: ``--memory`` records so long after the first steps.
_FIRST_S = 10.0
R = TypeVar("R", bound=Record)


def measure(seconds: float, out: Path, say: Say, device: str = "cuda") -> list[Row]:
    """A few rows each. ``seconds``: how long each is watched."""
    rows: list[Row] = []
    loop = (sys.executable, *LOOP, "--device", device, "--seconds")
    endless = (*loop, "600")
    say("a trace of the next steps, and stacks in-process")
    watched = out / "watched.jsonl"
    run = (*TUIMON, "run", "--no-stacks", *_HEADLESS, str(watched), "--", *endless)
    with _running(run) as pid:
        rows += _traced(pid, out / "trace.json.gz") + _sampled_by_itself(pid, seconds, out / "in_process.jsonl")
    say("the history of the allocator")
    rows += _remembered((*loop, str(seconds + _FIRST_S), "--leaks"), out / "memory.jsonl", "asked")
    if device != "cpu":
        rows += _remembered((*loop, "2", "--ends-in-oom"), out / "oom.jsonl", "oom")
    say("hooks brought into a training that was started without them")
    with _running(endless) as pid:
        rows += _brought_in(pid, seconds, out / "injected.jsonl")
    return rows


@contextlib.contextmanager
def _running(command: tuple[str, ...]) -> Iterator[int]:
    """The training's pid, while it runs."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise RuntimeError(f"the training did not start: {_end_of(process.communicate()[1])}")
        yield int(line)
    finally:
        process.terminate()
        process.communicate()


def _traced(pid: int, path: Path) -> list[Row]:
    from tuimon.trace.reader import read_trace
    from tuimon.trace.summary import summarize

    done = _run((*TUIMON, "trace", str(pid), "--steps", "5", "-o", str(path)))
    if done.returncode or not path.exists():
        return [_absent("trace of 5 steps", done)]
    path.with_suffix(".txt").write_text(done.stdout)
    told = summarize(read_trace(str(path)))
    kernels = [float(gpu.kernels) for gpu in told.gpus]
    busy = [100.0 * gpu.busy_ns / gpu.span_ns for gpu in told.gpus if gpu.span_ns]
    return [
        Row("trace: steps of 5", None, Spread.of([told.steps])),
        Row("trace: kernels", None, Spread.of(kernels), why_absent="none: CUPTI gave no kernels"),
        Row("trace: GPU busy", None, Spread.of(busy), unit="%", why_absent="no GPU in it"),
    ]


def _sampled_by_itself(pid: int, seconds: float, log: Path) -> list[Row]:
    """Stacks that the agent takes, while py-spy may not read the training."""
    watch = (*TUIMON, "attach", "--duration", str(seconds), *_HEADLESS, str(log), str(pid))
    done = _run((sys.executable, DENIED, *watch))
    windows = _records(log, Stacks)
    taken = [window for window in windows if window.in_process]
    if not taken:
        return [_absent("stacks in-process", done, f"{len(windows)} windows of py-spy's")]
    threads = Counter(row.thread for window in taken for row in window.stacks)
    what = f"stacks in-process: samples, of threads {', '.join(sorted(threads))[:80]}"
    return [Row(what, None, Spread.of([sum(window.samples for window in taken)]))]


def _remembered(loop: tuple[str, ...], log: Path, trigger: str) -> list[Row]:
    what = f"allocator's history ({trigger})"
    done = _run((*TUIMON, "run", "--memory", "--no-stacks", *_HEADLESS, str(log), "--", *loop))
    told = [record for record in _records(log, MemoryHistory) if record.trigger == trigger]
    if not told:
        return [_absent(what, done)]
    most = max(told[0].lines, key=lambda line: (line.growth_bytes or 0, line.live_bytes), default=None)
    place = f"{Path(most.file).name}:{most.line} holds {most.live_bytes / 1e6:.3g} MB" if most else "no line"
    kept = [] if most is None or most.growth_bytes is None else [most.growth_bytes / 1e6]
    pauses = [] if told[0].pause_ms is None else [told[0].pause_ms]
    rows = [Row(f"{what} on {told[0].device}: {place}, more by a step", None, Spread.of(kept), unit="MB")]
    return [*rows, Row(f"{what}: pause", None, Spread.of(pauses), unit="ms")] if trigger == "asked" else rows


def _brought_in(pid: int, seconds: float, log: Path) -> list[Row]:
    what = "attach --inject"
    done = _run((*TUIMON, "attach", "--inject", "--duration", str(seconds), *_HEADLESS, str(log), str(pid)))
    steps = sum(record.count for record in _records(log, Steps))
    if not steps:
        return [_absent(what, done)]
    timed = sum(record.steps for record in _records(log, GpuTime))
    said = next((line for line in done.stderr.splitlines() if "brought into" in line), "").removeprefix("tuimon: ")
    return [
        Row(f"{what}: steps ({said})", None, Spread.of([steps])),
        Row(f"{what}: steps timed on the GPU", None, Spread.of([timed])),
    ]


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 124, "", f"no end within {error.timeout:.0f} s")


def _records(log: Path, kind: type[R]) -> list[R]:
    return [record for record in read_log(str(log)) if isinstance(record, kind)] if log.exists() else []


def _absent(what: str, done: subprocess.CompletedProcess[str], besides: str = "") -> Row:
    why = f"exit code {done.returncode}: {_end_of(done.stderr)}"
    return Row(what, None, None, why_absent=f"{besides}; {why}" if besides else why)


def _end_of(text: str) -> str:
    """Its last two lines: a message of tuimon's, and what to do."""
    lines = [line.strip() for line in text.strip().splitlines()] or ["it said nothing"]
    return "; ".join(lines[-2:])[-300:]
