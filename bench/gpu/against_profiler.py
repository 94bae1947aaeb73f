"""GPU time per phase and launch lead, ours against torch.profiler's trace of the same steps."""

from __future__ import annotations

import bisect
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.gpu.training import SHAPES, TRUTH, Training, every_step_timed, hooked
from bench.overhead import Say
from bench.table import Row, Spread
from tuimon.agent import runtime
from tuimon.agent.ring.reader import RingReader
from tuimon.records import GpuTime
from tuimon.sources.markers.follower import RingFollower

OFF_PROMISE_PERCENT = 5.0
#: Leads closer than this are equal: what recording an event on an idle GPU takes, and the profiler's own delay.
LEAD_FLOOR_US = 50.0
PHASES = ("forward", "backward", "optimizer")


class Truth(NamedTuple):
    """From a trace: GPU time in us by phase over all steps, and leads in us by the phase whose end they belong to."""

    span_us: dict[str, float]
    lead_us: dict[str, float]


def measure(steps: int, say: Say) -> Iterator[Row]:
    """Rows for each training: phases off by, lead off by."""
    for name, shape in SHAPES.items():
        say(f"GPU time against torch.profiler: {name}, {steps} steps")
        yield from compared(name, *_measured(Training(shape), steps))


def _measured(training: Training, steps: int) -> tuple[Truth, list[GpuTime]]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with hooked(), every_step_timed():
        for _ in range(20):
            training.step()
        torch.cuda.synchronize()
        writer = runtime.writer()
        assert writer is not None
        reader = RingReader(writer.path)
        follower = RingFollower(reader, 3600.0, time.monotonic_ns())
        list(follower.windows(time.monotonic_ns()))  # the warm-up is read and done with
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                training.step()
            torch.cuda.synchronize()
            training.step()  # its boundaries resolve the last events
        runtime.writer().flush()  # type: ignore[union-attr]
        timed = [record for record in follower.last(time.monotonic_ns()) if isinstance(record, GpuTime)]
        reader.close()
    with tempfile.TemporaryDirectory(prefix="tuimon-gpu-check-") as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        return truth_of(json.loads(path.read_text())["traceEvents"]), timed


def truth_of(events: Iterable[dict[str, object]]) -> Truth:
    """Spans and leads from a trace of torch.profiler (Chrome format, times in us).

    The GPU comes to a boundary when all kernels launched before it have ended, and not before the CPU does.
    """
    launches: dict[object, float] = {}
    kernels: list[tuple[object, float]] = []  # correlation, end
    ends: list[tuple[float, str, float]] = []  # begin, phase, end
    for event in events:
        if event.get("ph") != "X":
            continue
        begin, name, category = float(str(event["ts"])), str(event["name"]), event.get("cat")
        end = begin + float(str(event["dur"]))
        correlation = dict(event.get("args") or {}).get("correlation")  # type: ignore[call-overload]
        if category in ("cuda_runtime", "cuda_driver") and correlation is not None:
            launches[correlation] = begin
        elif category in ("kernel", "gpu_memcpy", "gpu_memset"):
            kernels.append((correlation, end))
        elif category == "user_annotation" and name.startswith(TRUTH):
            ends.append((begin, name.removeprefix(TRUTH), end))
    order = sorted((launches[correlation], end) for correlation, end in kernels if correlation in launches)
    launched = [launch for launch, _ in order]
    done = list(_running_max(end for _, end in order))

    def reached(cpu_us: float) -> float:
        before = bisect.bisect_left(launched, cpu_us)
        return max(cpu_us, done[before - 1]) if before else cpu_us

    span_us: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    leads: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for begin, phase, end in sorted(ends):
        span_us[phase] += reached(end) - reached(begin)
        leads[phase].append(reached(end) - end)
    return Truth(span_us, {phase: statistics.median(values) for phase, values in leads.items() if values})


def _running_max(values: Iterable[float]) -> Iterable[float]:
    highest = 0.0
    for value in values:
        highest = max(highest, value)
        yield highest


def compared(name: str, truth: Truth, timed: list[GpuTime]) -> list[Row]:
    """How far what was timed is off the truth; one row that says why where there is nothing to compare."""
    steps = sum(record.steps for record in timed)
    what = f"{name}: off torch.profiler"
    ours: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    for record in timed:
        for phase in record.phases:
            if phase.name in ours:
                ours[phase.name] += phase.span_ns / 1e3
    total_truth, total_ours = sum(truth.span_us.values()), sum(ours.values())
    if not total_truth or not total_ours:
        why = f"no GPU time in {steps} steps that were timed" if total_truth else "torch.profiler has seen no kernel"
        return [Row(what, OFF_PROMISE_PERCENT, None, unit="%", why_absent=why)]
    rows = [
        Row(
            f"{what}: share of GPU time in {phase}, {steps} steps",
            OFF_PROMISE_PERCENT,
            Spread.of([100 * abs(ours[phase] / total_ours - truth.span_us[phase] / total_truth)]),
            unit="points",
        )
        for phase in PHASES
    ]
    return rows + _leads(what, truth, timed)


def _leads(what: str, truth: Truth, timed: list[GpuTime]) -> list[Row]:
    boundaries = {"forward": "backward begin", "backward": "backward end", "optimizer": "optimizer end"}
    rows = []
    for phase, boundary in boundaries.items():
        truth_us = truth.lead_us.get(phase, 0.0)
        found = [lead for record in timed for lead in record.leads if lead.boundary == boundary]
        known = [lead.median_us for lead in found if lead.median_us is not None]
        label = f"{what}: median lead at {boundary} (it is {truth_us:.0f} us)"
        if not known:
            rows.append(Row(label, OFF_PROMISE_PERCENT, None, unit="%", why_absent="lead not known"))
            continue
        off_us = abs(statistics.median(known) - truth_us)
        off = 0.0 if off_us <= LEAD_FLOOR_US else 100 * off_us / max(truth_us, LEAD_FLOOR_US)
        rows.append(Row(label, OFF_PROMISE_PERCENT, Spread.of([off]), unit="%"))
    return rows
