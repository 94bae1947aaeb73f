"""What each part of the check measures, and how much of it fits its time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.gpu.rows import AnyRow
from bench.overhead import Say


class Effort(NamedTuple):
    """How long a part may take, whether as little as it can is enough, where its logs go, which programs run."""

    limit_s: float
    quick: bool
    out: Path
    programs: list[str] | None  # all of them


def rows(part: str, effort: Effort, say: Say) -> Iterator[AnyRow]:
    """The rows of a part, each as soon as it is measured; what it needs is imported here."""
    limit_s, quick, out, programs = effort
    match part:
        case "tests":
            from bench.gpu import gpu_tests

            yield from gpu_tests.measure(say)
        case "nvml":
            from bench.gpu import nvml_latency

            yield from nvml_latency.measure(50, 0.6 * limit_s, say)
        case "syncs":
            from bench.gpu import syncs

            yield from syncs.measure(50, say)
        case "clock":
            from bench.gpu import against_profiler

            yield from against_profiler.measure(60 if quick else 300, say)
        case "steps":
            from bench.gpu import steps_cost

            yield from steps_cost.measure(1.0 if quick else 2.0, limit_s, say)
        case "orders":
            from bench.gpu import orders

            yield from orders.measure(5.0 if quick else 12.0, out, say)
        case "demos":
            from bench.gpu import demos

            yield from demos.measure(8.0 if quick else 25.0, limit_s, out, say)
        case "programs":
            from bench.gpu import program_runs

            seconds, gain_s = (8.0, 1.0) if quick else (20.0, 2.0)
            yield from program_runs.measure(seconds, gain_s, limit_s, out, say, programs)
