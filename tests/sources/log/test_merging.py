"""Records of several windows as one: nothing that adds up is lost."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec import structs

from tests.session import records
from tests.sources.log.steady_run import PID, coarsened, run_of, steps_at, totals_of
from tuimon.records import (
    Gpu,
    GpuAccumulation,
    GpuExchange,
    GpuPhase,
    GpuTime,
    Lead,
    Loader,
    MeasuredBatches,
    RankStep,
    Record,
    Stacks,
    Steps,
    ThreadCpu,
    Threads,
    Throttle,
    TorchMemory,
)
from tuimon.session.steps.totals import Totals
from tuimon.sources.log.coarse.merging import RULES, follows, merged, subject


@pytest.mark.parametrize("kind", RULES)
def test_every_field_has_a_rule(kind: type[Record]) -> None:
    assert {field.name for field in structs.fields(kind)} - {"t", "pid"} - set(RULES[kind]) <= {"number"}


def test_nothing_that_adds_up_is_lost() -> None:
    made = run_of(200)
    written = coarsened(made)
    assert len(written) < len(made) / 2
    before, after = totals_of(made), totals_of(written)
    assert after.window_s == pytest.approx(before.window_s)
    assert structs_of(after) == structs_of(before)
    for field in ("fetches", "wait_ns", "ready_fetches", "ready_total", "ready_none", "starts"):
        assert sums(written, Loader, field) == sums(made, Loader, field)
    assert sums(written, Stacks, "samples") == sums(made, Stacks, "samples")
    assert stack_counts(written) == stack_counts(made)
    assert worker_sums(written) == pytest.approx(worker_sums(made), rel=1e-3)
    slowest = [max(r.slowest.total_ns for r in of if isinstance(r, Steps) and r.slowest) for of in (made, written)]
    assert slowest[0] == slowest[1]


def structs_of(totals: Totals) -> tuple[object, ...]:
    return totals.count, totals.total_ns, totals.gc_ns, totals.gc_longest_ns, totals.histogram, totals.phases


def sums(made: list[Record], kind: type[Record], field: str) -> int:
    return sum(getattr(record, field) for record in made if isinstance(record, kind))


def stack_counts(made: list[Record]) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for record in made:
        if isinstance(record, Stacks):
            for stack in record.stacks:
                counts[tuple(stack.frames)] += stack.count
    return counts


def worker_sums(made: list[Record]) -> list[float]:
    rows = [row for record in made if isinstance(record, Loader) for row in record.workers]
    return [sum(getattr(row, name) for row in rows) for name in ("batches", "items_ms", "collate_ms", "wait_ms")]


def test_quantiles_come_from_the_merged_histogram() -> None:
    made = [record for record in run_of(10) if isinstance(record, Steps)]
    one = merged(made)
    totals = totals_of(list(made))
    assert one.median_ns == pytest.approx(totals.quantile_ms(0.5) * 1e6, rel=1e-6)  # type: ignore[operator]
    assert one.min_ns == min(record.min_ns for record in made if record.min_ns is not None)
    assert one.median_ns is not None
    assert one.p95_ns is not None
    assert one.slowest is not None
    assert one.min_ns <= one.median_ns <= one.p95_ns <= one.slowest.total_ns


def test_steps_that_were_only_counted_stay_counted() -> None:
    all_timed, few = (steps_at(t, random.Random(4), int(10 * t)) for t in (1.0, 2.0))
    few = structs.replace(few, timed=2)
    assert merged([all_timed, all_timed]).timed is None
    assert merged([all_timed, few]).timed == all_timed.count + 2
    assert totals_of([merged([all_timed, few])]).timed == totals_of([all_timed, few]).timed


def test_what_is_not_one_stretch_stays_apart() -> None:
    rng = random.Random(3)
    first, second = steps_at(1.0, rng, 0), steps_at(2.0, rng, 500)  # steps between them were lost
    assert not follows(second, first)
    one = Loader(t=1.0, pid=PID, number=0, window_s=1.0)
    assert follows(structs.replace(one, t=2.0), one)
    assert not follows(structs.replace(one, t=9.0), one)  # it was not used in between
    assert subject(one) != subject(structs.replace(one, number=1))
    stacks = Stacks(t=1.0, pid=PID, window_s=1.0, rate_hz=1, samples=1, stacks=[])
    assert subject(stacks) != subject(structs.replace(stacks, lost=True))
    assert not follows(structs.replace(stacks, window_s=8.0), structs.replace(stacks, window_s=8.0))


def test_threads_keep_their_means_and_idle_ones_their_number() -> None:
    def window(t: float, *rows: ThreadCpu) -> Threads:
        return Threads(t=t, pid=PID, window_s=2.0, cpu_ratio=0.5, rss_bytes=int(t), threads=list(rows))

    idle = ThreadCpu(7, "pool", 0.0, "waiting", None, 8)
    one = merged(
        [
            window(2.0, ThreadCpu(PID, "python", 0.2, "running", 0.1), idle),
            window(4.0, ThreadCpu(PID, "python", 0.6, "waiting", 0.3), ThreadCpu(8, "pool", 0.4, "running"), idle),
        ]
    )
    assert one.window_s == 4.0
    assert one.rss_bytes == 4
    assert one.threads == [
        ThreadCpu(PID, "python", 0.4, "waiting", 0.2),
        ThreadCpu(8, "pool", 0.2, "running"),
        idle,
    ]


def test_a_gpu_keeps_means_peaks_and_errors() -> None:
    def window(t: float, util: float, **more: object) -> Gpu:
        return Gpu(t=t, pid=0, index=0, uuid="GPU-1", name="Fake", util_ratio=util, util_samples=[util], **more)  # type: ignore[arg-type]

    one = merged(
        [
            window(1.0, 0.2, memory_used_bytes=5, energy_j=10.0, xids=[79], power_w=100.0, temperature_c=80),
            window(2.0, 0.4, memory_used_bytes=3, energy_j=30.0, xids=[79], throttled=[Throttle("heat")]),
            window(3.0, 0.6, memory_used_bytes=4, energy_j=40.0, throttled=[Throttle("power", 0.3)], temperature_c=70),
        ]
    )
    assert (one.util_ratio, one.memory_used_bytes, one.energy_j, one.xids) == (0.4, 5, 40.0, [79, 79])
    assert (one.power_w, one.temperature_c, one.util_samples) == (100.0, 80, [])
    assert one.throttled == [Throttle("heat", 0.3333), Throttle("power", 0.1)]


def test_measured_batches_add_up() -> None:
    some = (MeasuredBatches(1, 10, 2, 1, 1), None, MeasuredBatches(2, 30, 4, 2, 0))
    windows = [
        Loader(t=float(t), pid=PID, number=0, window_s=1.0, batches=measured) for t, measured in enumerate(some, 1)
    ]
    assert merged(windows).batches == MeasuredBatches(3, 40, 6, 3, 1)
    assert merged(windows[1:2] * 2).batches is None


def test_the_allocator_keeps_its_peak() -> None:
    peaks = ((1.0, 9), (2.0, None), (3.0, 6))
    found = merged([TorchMemory(t=t, pid=PID, device=0, allocated_bytes=5, peak_bytes=peak) for t, peak in peaks])
    assert (found.t, found.peak_bytes, found.allocated_bytes) == (3.0, 9, 5)


def test_gpu_time_and_leads_add_up() -> None:
    def window(t: float, *leads: Lead) -> GpuTime:
        phases = [GpuPhase("forward", 60, 6, 3), GpuPhase("backward", 40, 4, 2)]
        return GpuTime(t=t, pid=PID, window_s=2.0, device=0, steps=8, total_ns=100, phases=phases, leads=list(leads))

    known, unknown = Lead("fetch end", 8, -1.0, 5.0, 9.0, 2, 5.5), Lead("fetch end", 8, None, None, None, 1)
    one = merged(
        [window(2.0, unknown), window(4.0, known), window(6.0, structs.replace(known, median_us=7.0, max_us=11.0))]
    )
    assert (one.steps, one.total_ns, one.window_s) == (24, 300, 6.0)
    assert one.phases == [GpuPhase("forward", 180, 18, 9), GpuPhase("backward", 120, 12, 6)]
    assert one.leads == [Lead("fetch end", 16, -1.0, 5.0, 11.0, 4, 5.5), unknown]


def test_single_steps_to_compare_ranks_by_are_thinned_alike_in_all_and_keep_their_ends() -> None:
    def kept(shift: int) -> dict[int, float]:
        windows = [
            structs.replace(
                records.steps(float(t), {"data": 1.0}, count=30, first_index=30 * t + shift),
                rank_steps=[
                    RankStep(n, 1000 * n, 1, 2, 3, 4, 5, 6)
                    for n in range(30 * t + shift, 30 * (t + 1) + shift)
                    if n % 8 == 0
                ],
            )
            for t in range(10)
        ]
        one = merged(windows)
        return {step.index: one.t - step.before_us / 1e6 for step in one.rank_steps}

    first, second = kept(0), kept(7)
    assert 4 <= len(first) <= 8
    assert {n for n in first if 7 <= n < 300} == {n for n in second if n < 300}
    assert first[64] == pytest.approx(2.0 - 0.064)


def test_what_ranks_are_compared_by_adds_up_and_is_thinned_alike_in_all() -> None:
    def window(t: float, *reached_s: float) -> GpuTime:
        exchanges = [GpuExchange(moment_s, 10, 30, 5) for moment_s in reached_s]
        return GpuTime(
            t=t, pid=PID, window_s=2.0, device=0, steps=8, total_ns=100, phases=[], leads=[],
            exchanges=exchanges, accumulation=GpuAccumulation(2, 40, 60),
        )  # fmt: skip

    one = merged([window(30.0, 28.9, 29.9), window(32.0, 30.1, 30.9, 31.1), window(42.0, 40.2)])
    assert [exchange.reached_s for exchange in one.exchanges] == [30.1, 30.9, 40.2]
    assert one.accumulation == GpuAccumulation(6, 120, 180)
