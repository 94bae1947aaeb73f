"""What tuimon asks of a running training: a trace, the allocator's history, its hooks brought in, its own stacks.

Each check prints what it saw of a training on the GPU; one that saw nothing says why.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.gpu import watched
from bench.gpu.watched import HEADLESS, ROOT, TUIMON, records
from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.records import GpuTime, MemoryHistory, Stacks, Steps

LOOP = ("bench/gpu/loop.py",)
#: Runs a command that may not read the memory of other processes.
DENIED = "tests/sources/stacks/denied.py"
#: ``--memory`` records so long after the first steps.
_FIRST_S = 10.0


def measure(seconds: float, out: Path, say: Say, device: str = "cuda") -> Iterator[Row]:
    """A few rows each. ``seconds``: how long each is watched."""
    loop = (sys.executable, *LOOP, "--device", device, "--seconds")
    endless = (*loop, "600")
    with ThreadPoolExecutor(1) as beside:
        say("the history of the allocator, beside all other checks")
        leaking = (*loop, str(seconds + _FIRST_S), "--leaks")
        history = beside.submit(lambda: list(remembered(leaking, out / "memory.jsonl", "asked")))
        say("a trace of the next steps, and stacks in-process")
        run = (*TUIMON, "run", "--no-stacks", *HEADLESS, str(out / "watched.jsonl"), "--", *endless)
        with _running(run) as pid:
            yield from traced(pid, out / "trace.json.gz")
            yield from _sampled_by_itself(pid, seconds, out / "in_process.jsonl")
        if device != "cpu":
            say("an error for want of memory")
            yield from remembered((*loop, "2", "--ends-in-oom"), out / "oom.jsonl", "oom")
        say("hooks brought into a training that was started without them")
        with _running(endless) as pid:
            yield from brought_in(pid, seconds, out / "injected.jsonl")
        yield from history.result()


@contextlib.contextmanager
def _running(command: tuple[str, ...]) -> Iterator[int]:
    """The training's pid, while it runs."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise RuntimeError(f"the training did not start: {process.communicate()[1].strip()[-300:]}")
        yield int(line)
    finally:
        process.terminate()
        process.communicate()


def traced(pid: int, path: Path) -> Iterator[Row]:
    """A trace of a running training, on request."""
    from tuimon.trace.reader import read_trace
    from tuimon.trace.summary import summarize

    done = run_orders((*TUIMON, "trace", str(pid), "--steps", "5", "--force", "-o", str(path)))
    if done.returncode or not path.exists():
        yield _absent("trace of 5 steps", done)
        return
    path.with_suffix(".txt").write_text(done.stdout)
    told = summarize(read_trace(str(path)))
    kernels = [float(gpu.kernels) for gpu in told.gpus]
    busy = [100.0 * gpu.busy_ns / gpu.span_ns for gpu in told.gpus if gpu.span_ns]
    yield Row("trace: steps of 5", None, Spread.of([told.steps]))
    yield Row("trace: kernels", None, Spread.of(kernels), why_absent="none: CUPTI gave no kernels")
    yield Row("trace: GPU busy", None, Spread.of(busy), unit="%", why_absent="no GPU in it")


def _sampled_by_itself(pid: int, seconds: float, log: Path) -> Iterator[Row]:
    """Stacks that the agent takes, while py-spy may not read the training."""
    watch = (*TUIMON, "attach", "--duration", str(seconds), *HEADLESS, str(log), str(pid))
    done = run_orders((sys.executable, DENIED, *watch))
    windows = records(log, Stacks)
    taken = [window for window in windows if window.in_process]
    if not taken:
        yield _absent("stacks in-process", done, log, f"{len(windows)} windows of py-spy's")
        return
    threads = Counter(row.thread for window in taken for row in window.stacks)
    what = f"stacks in-process: samples, of threads {', '.join(sorted(threads))[:80]}"
    yield Row(what, None, Spread.of([sum(window.samples for window in taken)]))


def remembered(loop: tuple[str, ...], log: Path, trigger: str) -> Iterator[Row]:
    """The allocator's history, on request or for want of memory."""
    what = f"allocator's history ({trigger})"
    done = run_orders((*TUIMON, "run", "--memory", "--no-stacks", *HEADLESS, str(log), "--", *loop))
    told = [record for record in records(log, MemoryHistory) if record.trigger == trigger]
    if not told:
        yield _absent(what, done, log)
        return
    most = max(told[0].lines, key=lambda line: (line.growth_bytes or 0, line.live_bytes), default=None)
    place = f"{Path(most.file).name}:{most.line} holds {most.live_bytes / 1e6:.3g} MB" if most else "no line"
    kept = [] if most is None or most.growth_bytes is None else [most.growth_bytes / 1e6]
    why = "one moment shows no growth" if trigger == "oom" else "no line holds more with every step"
    yield Row(f"{what} on {told[0].device}: {place}, more by a step", None, Spread.of(kept), unit="MB", why_absent=why)
    if trigger == "asked":
        pauses = [] if told[0].pause_ms is None else [told[0].pause_ms]
        yield Row(f"{what}: pause", None, Spread.of(pauses), unit="ms")


def brought_in(pid: int, seconds: float, log: Path) -> Iterator[Row]:
    """The hooks, brought into a running training."""
    what = "attach --inject"
    done = run_orders((*TUIMON, "attach", "--inject", "--duration", str(seconds), *HEADLESS, str(log), str(pid)))
    steps = sum(record.count for record in records(log, Steps))
    if not steps:
        yield _absent(what, done, log)
        return
    timed = sum(record.steps for record in records(log, GpuTime))
    said = next((line for line in done.stderr.splitlines() if "brought into" in line), "").removeprefix("tuimon: ")
    yield Row(f"{what}: steps ({said})", None, Spread.of([steps]))
    yield Row(f"{what}: steps timed on the GPU", None, Spread.of([timed]))


def run_orders(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """One of tuimon's commands, within the time that is spared for it."""
    return watched.run(command, watched.SPARE_S)


def _absent(what: str, done: subprocess.CompletedProcess[str], log: Path | None = None, besides: str = "") -> Row:
    why = watched.reason(done, log)
    return Row(what, None, None, why_absent=f"{besides}; {why}" if besides else why)
