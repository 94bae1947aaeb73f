"""The demos on the GPU under ``tuimon run``: their logs, what the report says, how well py-spy does there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.gpu import watched
from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.records import Gpu, GpuTime, Stacks

#: name of the log -> demo and its arguments
DEMOS = {
    "small_model": ["demo/mnist_like.py", "gpu", "--epochs", "1000000"],
    "big_batch": ["demo/mnist_like.py", "gpu", "--epochs", "1000000", "--batch-size", "3200"],
    "slow_loader": ["demo/slow_loader.py", "--device", "cuda", "--workers", "2"],
}
LOG_LIMIT_BYTES = 2_000_000


def measure(seconds: float, limit_s: float, out: Path, say: Say) -> Iterator[Row]:
    """A few rows per demo, of as many as fit."""
    begin_s = last_s = time.monotonic()
    longest_s = 0.0
    for name, demo in DEMOS.items():
        if last_s - begin_s + longest_s > limit_s:
            say(f"no time for {name}")
            continue
        say(f"demo {name} under tuimon: {seconds:.0f} s")
        yield from _demo(name, [*demo, "--seconds", str(seconds)], seconds, out / f"{name}.jsonl")
        now_s = time.monotonic()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s


def _demo(name: str, demo: list[str], seconds: float, log: Path) -> Iterator[Row]:
    done = watched.watch(log, seconds, *demo)
    if done.returncode or not log.exists():
        yield Row(name, None, None, why_absent=watched.reason(done, log))
        return
    verdict = ", ".join(f"{found['rule']} ({found['severity']})" for found in watched.findings(log)) or "no finding"
    yield Row(f"{name}: {verdict}", None, None, why_absent=" ")
    yield from _figures(name, log)


def _figures(name: str, log: Path) -> Iterator[Row]:
    stacks, timed, gpus = watched.records(log, Stacks), watched.records(log, GpuTime), watched.records(log, Gpu)
    read = sum(record.samples for record in stacks)
    failed = sum(record.failed for record in stacks)
    yield Row(f"{name}: log", LOG_LIMIT_BYTES / 1e6, Spread.of([log.stat().st_size / 1e6]), unit="MB")
    if read + failed:
        share = 100 * failed / (read + failed)
        yield Row(f"{name}: samples py-spy could not read, of {read + failed}", None, Spread.of([share]), unit="%")
    else:
        yield Row(f"{name}: py-spy", None, None, why_absent="no samples")
    yield Row(f"{name}: steps timed on the GPU", None, Spread.of([sum(r.steps for r in timed)]))
    errors = [record.lead_error_us for record in timed if record.lead_error_us is not None]
    yield Row(f"{name}: lead known to within", 50.0, Spread.of(errors), unit="us")
    utils = [100 * record.util_ratio for record in gpus if record.util_ratio is not None]
    yield Row(f"{name}: GPU utilisation", None, Spread.of(utils), unit="%")
