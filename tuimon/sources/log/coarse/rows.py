"""What rows and distributions of several records come to, oldest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from msgspec import structs

from tuimon.records import (
    BlockVisits,
    Gil,
    GilCount,
    GilFunction,
    Gpu,
    GpuAccumulation,
    GpuExchange,
    GpuPhase,
    GpuTime,
    Lead,
    Loader,
    LoaderWorker,
    LoopStack,
    MeasuredBatches,
    PhaseTime,
    RangeTime,
    RankStep,
    SlowStep,
    StackCount,
    Stacks,
    Steps,
    ThreadCpu,
    Threads,
    Throttle,
    bucket_length_ns,
)
from tuimon.sources.log.coarse.rules import Rule, known
from tuimon.sources.window_lengths import stride_of

#: Most steps of ten seconds that are kept to be compared between ranks: 360 bytes of log.
_MOST_RANK_STEPS = 8


def timed(_name: str, records: Sequence[Steps]) -> int | None:
    """How many steps were timed boundary by boundary; None where all were."""
    if all(record.timed is None for record in records):
        return None
    return sum(record.usual if record.timed is None else min(record.timed, record.count) for record in records)


def histogram(_name: str, records: Sequence[Steps]) -> list[tuple[int, int]]:
    """Steps by bucket of their length."""
    counts: Counter[int] = Counter()
    for record in records:
        counts.update(dict(record.histogram))
    return sorted(counts.items())


def quantile(q: float) -> Rule:
    """Quantile of the steps' lengths, within 0.5 %, and between their extremes."""

    def rule(_name: str, records: Sequence[Steps]) -> int | None:
        counts = histogram("histogram", records)
        rank, seen = q * sum(count for _, count in counts), 0
        for bucket, count in counts:
            seen += count
            if seen > rank:
                longest = max((r.slowest.total_ns for r in records if r.slowest is not None), default=None)
                length = max(round(bucket_length_ns(bucket)), min(known("min_ns", records), default=0))
                return length if longest is None else min(length, longest)
        return None

    return rule


def phases(_name: str, records: Sequence[Steps]) -> list[PhaseTime]:
    """Total time by phase."""
    sums: Counter[str] = Counter()
    for record in records:
        for phase in record.phases:
            sums[phase.name] += phase.total_ns
    return [PhaseTime(name, total_ns) for name, total_ns in sums.items()]


def ranges(_name: str, records: Sequence[Steps]) -> list[RangeTime]:
    """One row a path; its phase is where one window spent most."""
    rows: dict[str, list[RangeTime]] = {}
    for record in records:
        for row in record.ranges:
            rows.setdefault(row.path, []).append(row)
    return [
        RangeTime(path, sum(r.count for r in of), sum(r.total_ns for r in of), max(of, key=lambda r: r.total_ns).phase)
        for path, of in rows.items()
    ]


def slowest(_name: str, records: Sequence[Steps]) -> SlowStep | None:
    """The slowest step of all."""
    return max(known("slowest", records), key=lambda step: step.total_ns, default=None)


def rank_steps(_name: str, records: Sequence[Steps]) -> list[RankStep]:
    """The steps whose number is a multiple of a power of two: the same in all ranks."""
    stride = stride_of(sum(record.count for record in records), _MOST_RANK_STEPS)
    newest_s = records[-1].t
    return [
        structs.replace(step, before_us=step.before_us + round((newest_s - record.t) * 1e6))
        for record in records
        for step in record.rank_steps
        if step.index % stride == 0
    ]


def fetch_p95(_name: str, records: Sequence[Loader]) -> int | None:
    """The median window's, by its fetches: as the Session has it over several records."""
    known = sorted((record.p95_ns, record.fetches) for record in records if record.p95_ns is not None)
    half = sum(fetches for _, fetches in known) / 2
    for value, fetches in known:
        half -= fetches
        if half <= 0:
            return value
    return None


def workers(_name: str, records: Sequence[Loader]) -> list[LoaderWorker]:
    """One row a worker; reports of unknown parts stay rows of their own."""
    rows: dict[tuple[int, int, bool, bool], list[LoaderWorker]] = {}
    for record in records:
        for row in record.workers:
            key = row.pid, row.number, row.batches is not None, row.hand_over_ms is not None
            rows.setdefault(key, []).append(row)
    return [
        LoaderWorker(
            pid=pid,
            number=number,
            batches=sum(known("batches", of)) if whole else None,
            items_ms=_tenths("items_ms", of),
            collate_ms=_tenths("collate_ms", of),
            wait_ms=_tenths("wait_ms", of),
            hand_over_ms=_tenths("hand_over_ms", of),
        )
        for (pid, number, whole, _), of in rows.items()
    ]


def batches(_name: str, records: Sequence[Loader]) -> MeasuredBatches | None:
    """All of them."""
    measured = [record.batches for record in records if record.batches is not None]
    return reduce(MeasuredBatches.plus, measured) if measured else None


def _tenths(name: str, rows: Sequence[LoaderWorker]) -> float | None:
    values = known(name, rows)
    return round(sum(values), 1) if values else None


def stacks(_name: str, records: Sequence[Stacks]) -> list[StackCount]:
    """One row a stack of a thread."""
    counts: Counter[tuple[int, str, tuple[int, ...]]] = Counter()
    for record in records:
        for stack in record.stacks:
            counts[stack.tid, stack.thread, tuple(stack.frames)] += stack.count
    return [StackCount(tid, thread, list(frames), count) for (tid, thread, frames), count in counts.items()]


def blocks(_name: str, records: Sequence[Stacks]) -> list[BlockVisits]:
    """One row a frame."""
    samples, visits = Counter[int](), Counter[int]()
    for record in records:
        for block in record.blocks:
            samples[block.frame] += block.samples
            visits[block.frame] += block.visits
    return [BlockVisits(frame, count, visits[frame]) for frame, count in samples.items()]


def loop(_name: str, records: Sequence[Stacks]) -> list[LoopStack]:
    """The latest that any has."""
    return next((record.loop for record in reversed(records) if record.loop), [])


def rate(_name: str, records: Sequence[Stacks]) -> float:
    """Samples a second within the windows."""
    seconds = sum(record.window_s for record in records)
    return round(sum(record.samples for record in records) / seconds, 1) if seconds > 0 else 0.0


def gil(_name: str, records: Sequence[Gil]) -> list[GilCount]:
    """One row a thread."""
    counts: Counter[int] = Counter()
    for record in records:
        for row in record.threads:
            counts[row.tid] += row.count
    return [GilCount(tid, count) for tid, count in counts.items()]


def gil_functions(_name: str, records: Sequence[Gil]) -> list[GilFunction]:
    """One row a thread's function."""
    counts: Counter[tuple[int, str, str]] = Counter()
    for record in records:
        for row in record.functions:
            counts[row.tid, row.file, row.function] += row.count
    return [GilFunction(*key, count) for key, count in counts.items()]


def threads(_name: str, records: Sequence[Threads]) -> list[ThreadCpu]:
    """The threads of the newest window, with their means: one that an earlier window folds with idle ones was idle."""
    whole_s = sum(record.window_s for record in records)
    rows: dict[tuple[int, bool], list[tuple[ThreadCpu, float]]] = {}
    for record in records:
        for row in record.threads:
            rows.setdefault((row.tid, row.count > 1), []).append((row, record.window_s))
    return [
        structs.replace(
            row,
            cpu_ratio=_share([(of.cpu_ratio, s) for of, s in rows[row.tid, row.count > 1]], whole_s),
            delay_ratio=_share([(of.delay_ratio, s) for of, s in rows[row.tid, row.count > 1]], whole_s),
        )
        for row in records[-1].threads
    ]


def _share(ratios: Sequence[tuple[float | None, float]], whole_s: float) -> float | None:
    known = [(ratio, seconds) for ratio, seconds in ratios if ratio is not None]
    return round(sum(ratio * seconds for ratio, seconds in known) / whole_s, 3) if known and whole_s else None


def throttled(_name: str, records: Sequence[Gpu]) -> list[Throttle]:
    """Share of the time by cause; where it was only seen to occur, of the windows, as the Session counts it."""
    sums: dict[str, float] = {}
    for record in records:
        for row in record.throttled:
            sums[row.cause] = sums.get(row.cause, 0.0) + (1.0 if row.ratio is None else row.ratio)
    return [Throttle(cause, round(total / len(records), 4)) for cause, total in sums.items()]


def gpu_phases(_name: str, records: Sequence[GpuTime]) -> list[GpuPhase]:
    """One row a phase."""
    sums: dict[str, list[int]] = {}
    for record in records:
        for phase in record.phases:
            row = sums.setdefault(phase.name, [0, 0, 0])
            for place, value in enumerate((phase.span_ns, phase.idle_ns, phase.maybe_idle_ns)):
                row[place] += value
    return [GpuPhase(name, *row) for name, row in sums.items()]


def exchanges(_name: str, records: Sequence[GpuTime]) -> list[GpuExchange]:
    """The exchanges of the first second of each ten, by the clock: the same in all ranks."""
    return [found for record in records for found in record.exchanges if int(found.reached_s) % 10 == 0]


def accumulation(_name: str, records: Sequence[GpuTime]) -> GpuAccumulation | None:
    """The sums."""
    known = [record.accumulation for record in records if record.accumulation is not None]
    if not known:
        return None
    return GpuAccumulation(*(sum(getattr(row, name) for row in known) for name in GpuAccumulation.__struct_fields__))


def leads(_name: str, records: Sequence[GpuTime]) -> list[Lead]:
    """One row a boundary; windows in which it is not known stay a row of their own, after the other."""
    rows: dict[tuple[str, bool, bool], list[Lead]] = {}
    for record in records:
        for lead in record.leads:
            rows.setdefault((lead.boundary, lead.median_us is None, lead.mean_us is None), []).append(lead)
    return [
        Lead(
            boundary=boundary,
            count=sum(lead.count for lead in of),
            min_us=min(known("min_us", of), default=None),
            median_us=_weighted_median([(lead.median_us, lead.count) for lead in of if lead.median_us is not None]),
            max_us=max(known("max_us", of), default=None),
            idle_count=sum(lead.idle_count for lead in of),
            mean_us=_mean_lead(of),
        )
        for (boundary, *_), of in sorted(rows.items(), key=lambda item: item[0][1:])
    ]


def _weighted_median(values: list[tuple[float, int]]) -> float | None:
    half = sum(weight for _, weight in values) / 2
    for value, weight in sorted(values):
        half -= weight
        if half <= 0:
            return value
    return None


def _mean_lead(leads: Sequence[Lead]) -> float | None:
    known = [(lead.mean_us, lead.count) for lead in leads if lead.mean_us is not None]
    count = sum(count for _, count in known)
    return round(sum(mean * n for mean, n in known) / count, 1) if count else None
