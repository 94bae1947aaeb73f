"""GPU time, leads and torch's memory, folded from literal records."""

import pytest

from tests.session.records import MS, one_process, steps
from tuimon.records import GpuAccumulation, GpuExchange, GpuPhase, GpuTime, Lead, TorchMemory
from tuimon.session.gpu_time import GpuTimeStats
from tuimon.session.series import WHOLE_RUN, Span

PHASES = {"data": 40, "forward": 20, "backward": 30, "optimizer": 10}
SPANS = (("data", 30, 30, 0), ("forward", 20, 0, 0), ("backward", 40, 0, 40), ("optimizer", 10, 0, 0))


def gpu_time(t, spans=SPANS, turns=4, leads=(), **more):
    """A window of ``turns`` like turns; spans in ms: (phase, span, idle, maybe idle)."""
    phases = [GpuPhase(name, *(turns * ms * MS for ms in times)) for name, *times in spans]
    facts = {"pid": 100, "window_s": 1.0, "device": 0, "lead_error_us": 8.0}
    return GpuTime(
        t=t,
        steps=turns,
        total_ns=sum(phase.span_ns for phase in phases if phase.name != "eval"),
        phases=phases,
        leads=[Lead(*lead) for lead in leads],
        **(facts | more),
    )


def session(*records):
    return one_process(*records, gpu_uuids=["GPU-a"])


def test_phases_have_their_share_of_a_step_on_the_gpu():
    found = session(*(record for t in range(1, 6) for record in (steps(float(t), PHASES), gpu_time(float(t)))))
    for view in (found.over("recent"), found.over("whole")):
        on_gpu = {name: (span, *idle) for name, (span, idle) in view.of(100).gpu_time.phases.items()}
        assert on_gpu["data"] == pytest.approx((0.3, 0.3, 0.3))
        assert on_gpu["backward"] == pytest.approx((0.4, 0, 0.4))
        assert on_gpu["other"] == (0, 0, 0)  # it was measured: there was none


def test_the_last_half_minute_counts():
    old = (("data", 100, 100, 0),)
    found = session(gpu_time(1.0, old), *(gpu_time(float(t)) for t in range(40, 50)))
    assert found.over("recent").of(100).gpu_time.idle.low == pytest.approx(0.3)
    found.add(steps(200.0, PHASES))
    assert found.over("recent").of(100).gpu_time is None


def test_leads_of_windows_are_joined_by_their_weight():
    leads = [[("backward begin", 10, 5.0, 10.0, 20.0, 0)], [("backward begin", 30, 50.0, 100.0, 900.0, 15)]]
    row = session(*(gpu_time(float(t), leads=lead) for t, lead in enumerate(leads, 1))).over("recent").of(100).gpu_time
    (lead,) = row.leads
    assert (lead.boundary, lead.seen, lead.min_us, lead.median_us, lead.max_us) == ("backward begin", 40, 5, 100, 900)
    assert lead.stream_idle_ratio == pytest.approx(15 / 40)


def test_the_first_window_is_no_part_of_the_run():
    slow = (("data", 900, 900, 0), ("forward", 100, 0, 0))
    records = [gpu_time(1.0, slow), *(gpu_time(float(t)) for t in range(2, 5))]
    found = session(*(steps(float(t), PHASES) for t in range(1, 5)), *records)
    assert found.over("whole").of(100).gpu_time.phases["data"].span == pytest.approx(0.3)
    alone = session(*(steps(float(t), PHASES) for t in range(1, 5)), records[0])
    assert alone.over("whole").of(100).gpu_time.phases["data"].span == pytest.approx(0.9)


def memory(t, retries=0, device=0, **more):
    held = {"allocated_bytes": 5, "reserved_bytes": 7}
    return TorchMemory(t=t, pid=100, device=device, alloc_retries=retries, ooms=0, **(held | more))


def test_torch_memory_and_the_gpu_it_is_on():
    (row,) = session(memory(1.0)).over("recent").of(100).torch_memory
    assert (row.device, row.uuid, row.allocated_bytes, row.reserved_bytes, row.retries) == (0, "GPU-a", 5, 7, None)
    rows = session(memory(1.0), memory(1.0, device=3)).over("recent").of(100).torch_memory
    assert [(row.device, row.uuid) for row in rows] == [(0, None), (3, None)]  # one GPU is reported, two are used


def test_retries_are_counted_from_when_the_training_is_steady():
    found = session(memory(1.0, 3), steps(5.0, PHASES), memory(6.0, 8))
    assert found.over("recent").of(100).torch_memory[0].retries is None
    found.add(memory(16.0, 9))
    assert found.over("recent").of(100).torch_memory[0].retries == 0
    found.add(memory(20.0, 13))
    assert found.over("recent").of(100).torch_memory[0].retries == 4


@pytest.mark.parametrize("name", ["pinned_bytes", "peak_bytes"])
def test_what_was_most_in_the_run_stays_even_if_the_program_resets_it(name):
    found = session(memory(1.0, **{name: 9}), memory(2.0, **{name: 6}))
    assert getattr(found.over("recent").of(100).torch_memory[0], name) == 9
    assert getattr(session(memory(1.0)).over("recent").of(100).torch_memory[0], name) is None


def test_what_is_recent_is_the_latest_and_sums_add_up():
    stats = GpuTimeStats()
    for number in range(20):
        exchanges = [GpuExchange(2.0 * number + 0.125 * at, 10, 30, 5) for at in range(8)]
        sums = GpuAccumulation(3, 30, 60)
        window = gpu_time(2.0 * (number + 1), window_s=2.0, exchanges=exchanges, accumulation=sums)
        stats.add_record(window, None)
    row = stats.over(Span(last_s=30.0), 40.0)
    assert len(row.exchanges) == 64
    assert row.exchanges[-1] == (38, 38.875, 10, 30, 5)
    assert row.accumulation == GpuAccumulation(45, 450, 900)  # of 15 windows
    assert stats.over(WHOLE_RUN, 40.0).accumulation == GpuAccumulation(57, 570, 1140)  # without the first
