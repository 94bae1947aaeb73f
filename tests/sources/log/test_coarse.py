"""Windows of a steady run are merged: nothing that adds up is lost, and a change is recorded as fine as before."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs

from tests.session import records
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import (
    Exit,
    Gpu,
    GpuAccumulation,
    GpuExchange,
    GpuPhase,
    GpuTime,
    Lead,
    Loader,
    LoaderFacts,
    LoaderWorker,
    Mark,
    Notice,
    RankStep,
    Record,
    SlowStep,
    StackCount,
    Stacks,
    Steps,
    ThreadCpu,
    Threads,
    Throttle,
    TorchMemory,
    length_bucket,
)
from tuimon.session.steps.totals import Totals
from tuimon.sources.log.coarse import steadiness
from tuimon.sources.log.coarse.held import Coarse
from tuimon.sources.log.coarse.merging import RULES, follows, merged, subject
from tuimon.sources.log.coarse.steadiness import Steadiness
from tuimon.sources.log.reader import read_log
from tuimon.sources.log.writer import LogWriter
from tuimon.views.report.summary import fold, report_of

PID = 100
AFTER_S = 60.0
PLACES = [("train.py", line, f"f{line}", "x = y", True) for line in range(3)]


def steps_at(t: float, rng: random.Random, first_index: int, ms: float = 100.0, data: float = 0.6) -> Steps:
    lengths = [int(ms * 1e6 * rng.uniform(0.9, 1.1)) for _ in range(rng.randint(8, 11))]
    whole = sum(lengths)
    parts = {"data": int(data * whole), "forward": int(0.15 * whole), "backward": int(0.2 * whole)}
    parts["optimizer"] = whole - sum(parts.values())
    return structs.replace(
        records.steps(t, dict.fromkeys(parts, 1.0), count=len(lengths), first_index=first_index),
        total_ns=whole,
        min_ns=min(lengths),
        histogram=sorted(Counter(map(length_bucket, lengths)).items()),
        phases=[records.PhaseTime(name, ns) for name, ns in parts.items()],
        slowest=SlowStep(first_index + lengths.index(max(lengths)), max(lengths), []),
        gc_ns=rng.randint(0, 10**6),
        gc_count=1,
        gc_longest_ns=rng.randint(0, 10**6),
    )


def second_of(t: float, rng: random.Random, first_index: int, **more: float) -> list[Record]:
    """What a training with two workers on a GPU makes in a second."""
    rows = [LoaderWorker(PID + n, n, 5, rng.uniform(600, 700), 20.0, 300.0, 10.0) for n in (1, 2)]
    frames = [0, 1] if rng.random() < 0.6 else [0, 2]
    return [
        steps_at(t, rng, first_index, **more),
        Loader(
            t=t,
            pid=PID,
            number=0,
            window_s=1.0,
            role="train",
            fetches=10,
            wait_ns=rng.randint(5, 7) * 10**8,
            p95_ns=rng.randint(6, 9) * 10**7,
            ready_fetches=10,
            ready_total=rng.randint(0, 4),
            ready_none=8,
            facts=LoaderFacts(dataset="Photos", kind="map", workers=2, prefetch=2) if t < 3 else None,
            workers=rows,
        ),
        Threads(
            t=t,
            pid=PID,
            window_s=1.0,
            cpu_ratio=0.5,
            rss_bytes=10**9,
            threads=[ThreadCpu(PID, "python", rng.uniform(0.4, 0.6), "running", 0.01, 1)],
        ),
        Stacks(t=t, pid=PID, window_s=0.9, rate_hz=20, samples=18, stacks=[StackCount(PID, "MainThread", frames, 18)]),
        Gpu(
            t=t,
            index=0,
            pid=0,
            uuid="GPU-1",
            name="Fake",
            util_ratio=rng.uniform(0.2, 0.4),
            memory_used_bytes=10**9,
            memory_total_bytes=10**10,
            throttled=[Throttle("power", 0.5)] if rng.random() < 0.5 else [],
        ),
    ]


def run_of(seconds: int, **more: float) -> list[Record]:
    rng = random.Random(1)
    made: list[Record] = [records.header(), records.process(), records.frames(*PLACES)]
    index = 0
    for t in range(1, seconds + 1):
        made += second_of(float(t), rng, index, **more)
        steps = made[-5]
        assert isinstance(steps, Steps)
        index += steps.count
    return made


def coarsened(made: list[Record], after_s: float = AFTER_S) -> list[Record]:
    coarse = Coarse(Steadiness(after_s))
    written = [each for record in made for each in coarse.add_record(record)]
    return written + coarse.rest()


def totals_of(made: list[Record]) -> Totals:
    totals = Totals()
    for record in made:
        if isinstance(record, Steps):
            totals.add_window(record)
    return totals


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


def test_the_report_of_a_merged_log_is_that_of_the_fine_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [*run_of(400), Exit(t=401.0, pid=PID, exit_code=0)]
    reports = []
    for name, after_s in (("fine", 10**6), ("coarse", AFTER_S)):
        monkeypatch.setattr(steadiness, "STEADY_AFTER_S", after_s)
        log = LogWriter(str(tmp_path / name))
        for record in made:
            log.add_record(record)
            assert log.flush(record.t) is None
        log.close()
        verdicts = Verdicts()
        session, findings = fold(read_log(log.path), verdicts)
        reports.append(report_of(session, findings, "log", verdicts.changes))
    fine, coarse = reports
    assert (tmp_path / "coarse").stat().st_size < 0.4 * (tmp_path / "fine").stat().st_size
    assert coarse["steps"] == fine["steps"]
    assert fine["findings"]
    assert [(f["rule"], f["cause"], f["severity"]) for f in coarse["findings"]] == [
        (f["rule"], f["cause"], f["severity"]) for f in fine["findings"]
    ]
    for one, other in zip(coarse["phases"], fine["phases"], strict=True):
        assert one["share"] == pytest.approx(other["share"], abs=0.002)
    assert coarse["changes"] == fine["changes"]
    assert coarse["sampling"]["samples"] == fine["sampling"]["samples"]
    assert coarse["run"]["duration_s"] == fine["run"]["duration_s"]


def lengths_after(written: list[Record], t: float) -> list[float]:
    return [record.window_s for record in written if isinstance(record, Steps) and record.t > t]


def test_windows_grow_once_the_run_is_steady() -> None:
    written = coarsened(run_of(200))
    assert set(lengths_after([r for r in written if r.t < AFTER_S], 0.0)) == {1.0}
    assert set(lengths_after(written, AFTER_S + 10)[:-1]) == {10.0}
    assert [r.t for r in written] == sorted(r.t for r in written)


CHANGES: dict[str, list[Record]] = {
    "notice": [Notice(t=155.0, pid=0, source="gpu", level="warning", message="lost")],
    "process": [records.process(pid=300, role="other", t=155.0)],
    "driver error": [Gpu(t=155.0, pid=0, index=0, uuid="GPU-1", name="Fake", xids=[79])],
    "throttled": [Gpu(t=155.0, pid=0, index=0, uuid="GPU-1", name="Fake", throttle=["thermal"])],
    "retries": [
        TorchMemory(t=154.0, pid=PID, device=0, alloc_retries=0),
        TorchMemory(t=155.0, pid=PID, device=0, alloc_retries=1),
    ],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_recorded_as_it_came(change: list[Record]) -> None:
    made = run_of(300)
    at = next(number for number, record in enumerate(made) if record.t > 155.0)
    written = coarsened(made[:at] + change + made[at:])
    assert set(lengths_after(written, 155.0)[:50]) == {1.0}  # also what was held at that moment
    assert lengths_after(written, 270.0)[0] == 10.0
    assert [r for r in written if r in change] == change


def shifted(change: dict[str, float]) -> list[Record]:
    made = run_of(150)
    index = next(r.first_index + r.count for r in reversed(made) if isinstance(r, Steps))
    rng = random.Random(2)
    for t in range(151, 400):
        made += second_of(float(t), rng, index, **change)
        steps = made[-5]
        assert isinstance(steps, Steps)
        index += steps.count
    return made


@pytest.mark.parametrize("change", [{"ms": 140.0}, {"ms": 60.0}, {"data": 0.4}], ids=str)
def test_a_shift_of_the_steps_is_a_change_and_then_the_new_normal(change: dict[str, float]) -> None:
    written = coarsened(shifted(change))
    assert set(lengths_after([r for r in written if r.t < 140], 80.0)) == {10.0}
    assert set(lengths_after(written, 165.0)[:40]) == {1.0}
    assert set(lengths_after(written, 280.0)[:-1]) == {10.0}
    assert totals_of(written).count == totals_of(shifted(change)).count


def test_a_standstill_is_a_change() -> None:
    made = run_of(150)
    index = next(r.first_index + r.count for r in reversed(made) if isinstance(r, Steps))
    made += [
        Steps(t=float(t), pid=PID, window_s=1.0, count=0, first_index=index, total_ns=0, phases=[])
        for t in range(151, 190)
    ]
    assert set(lengths_after(coarsened(made), 165.0)) == {1.0}


def test_noise_and_workers_of_another_epoch_are_none() -> None:
    made = run_of(300)
    for epoch in range(60, 300, 20):
        worker = records.process(pid=1000 + epoch, role="worker", ppid=PID, t=float(epoch))
        at = next(number for number, record in enumerate(made) if record.t > epoch)
        made[at:at] = [worker, Mark(t=float(epoch), pid=PID, name=f"epoch {epoch}")]
    written = coarsened(made)
    assert set(lengths_after(written, 150.0)[:-1]) == {10.0}
    assert sum(isinstance(record, Mark) for record in written) == 12


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


def test_a_killed_monitor_loses_at_most_a_coarse_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steadiness, "STEADY_AFTER_S", AFTER_S)
    log = LogWriter(str(tmp_path / "run.jsonl"))
    for record in run_of(300):
        log.add_record(record)
        log.flush(record.t)
        if record.t >= 2.0:
            last = max(each.t for each in read_log(log.path))
            assert record.t - last <= 10.0 or record.t % 50  # reading is slow: at some moments
    assert log.flush(320.0) is None  # nothing has come for a while
    assert max(record.t for record in read_log(log.path)) == 300.0


def test_a_verdict_that_changes_makes_windows_fine() -> None:
    coarse = Coarse(Steadiness(AFTER_S))
    written: list[Record] = []
    for record in run_of(200):
        if record.t == 155.0 and isinstance(record, Steps):
            coarse.note_change(155.0)
        written += coarse.add_record(record)
    assert set(lengths_after(written, 155.0)) == {1.0}
