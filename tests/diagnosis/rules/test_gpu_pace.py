"""Who sets the pace, and who waits for whom: rules on simulated GPU trainings."""

import pytest

from tests.diagnosis.gpu import (
    BACKWARD,
    FETCH,
    FLOAT,
    FORWARD,
    FORWARD_ITEM,
    IN_BACKWARD,
    IN_FETCH,
    ITEM,
    MODULE,
    PID,
    SAVE,
    SCALER,
    STEP,
    TO_DEVICE,
    USUAL,
    findings,
    gpu,
    gpu_time,
    session_of,
)
from tests.session.records import process, steps
from tuimon.diagnosis import diagnose, unjudged
from tuimon.records import GpuProcess

FETCHING = ([FETCH, IN_FETCH], 300)
LOUD = ("critical", "warning")


def loud(found):
    return [rule for rule, finding in found.items() if finding.severity in LOUD]


# -- launch_bound


def test_small_kernels_are_launch_bound_at_the_models_line():
    found = findings("launch_bound", *USUAL, util=0.4, cpu=0.99)
    first = next(iter(found.values()))
    assert (first.rule, first.severity) == ("launch_bound", "critical")
    assert first.where[0].line == 42
    assert first.evidence["lead_us"] < 100
    assert first.share_of_step == pytest.approx(0.89, abs=0.03)
    assert not {"compute_bound", "small_batch", "spin_wait", "input_bound"} & found.keys()


def test_only_what_is_certain_is_promised():
    known, unknown = findings("launch_bound", *USUAL, util=0.4), findings("launch_bound", *USUAL)
    assert unknown["launch_bound"].estimated_speedup is None
    assert unknown["launch_bound"].evidence["speedup_at_most"] > known["launch_bound"].estimated_speedup > 1.5
    assert unknown["launch_bound"].severity == "warning"


def test_an_item_in_a_launch_bound_loop_is_named_beside_it():
    found = findings("launch_bound", *USUAL, ([ITEM], 8), util=0.4, cpu=0.99)
    first = next(iter(found.values()))
    assert (first.rule, [place.line for place in first.where]) == ("launch_bound", [42, 45])
    assert "loss.detach()" in first.action
    assert "sync_point" not in found


def test_launches_that_run_ahead_are_no_launch_bound():
    for kind in ("gpu_bound", "queue_full", "sync_item", "data_starved", "transfer"):
        assert "launch_bound" not in findings(kind, *USUAL, util=0.9), kind


def test_a_loop_that_synchronises_after_every_phase_is_not_launch_bound():
    """Its leads are as small, but the CPU waits for the GPU in most of its samples."""
    busy = {"forward": (30, 0, 30), "backward": (50, 0, 50), "optimizer": (10, 0, 10)}
    leads = dict.fromkeys(("fetch end", "backward begin", "backward end", "optimizer end"), (5.0, 1.0))
    phases = {"data": 1, "forward": 30, "backward": 50, "optimizer": 10}
    more = [gpu_time(5000, busy, leads), steps(5000, phases)]
    found = findings("launch_bound", ([FORWARD_ITEM], 900), *USUAL, more=more)
    assert "launch_bound" not in found


# -- compute_bound, queue_full


def test_a_gpu_that_is_always_busy_is_the_verdict_and_benign():
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.99, cpu=0.98)
    assert next(iter(found)) == "compute_bound"
    assert found["compute_bound"].severity == "benign"
    assert "busy all the time, most of it in backward" in found["compute_bound"].headline
    assert not loud(found)


def test_a_full_queue_explains_where_the_cpu_time_is():
    found = findings("queue_full", *USUAL, util=0.99, cpu=1.0)
    assert next(iter(found)) == "compute_bound"
    assert 30 < found["queue_full"].evidence["lead_ms"] < 60
    assert not loud(found)


def test_a_queue_that_a_synchronisation_empties_is_not_full():
    assert "queue_full" not in findings("gpu_bound", ([ITEM], 90), *USUAL[:1])
    assert "queue_full" not in findings("gpu_bound")  # no samples: what the CPU waits at is not known


# -- sync_point, spin_wait


def test_an_item_that_lets_the_gpu_run_dry():
    found = findings("sync_item", *USUAL, ([ITEM], 60), cpu=0.99)
    first = next(iter(found.values()))
    assert (first.rule, first.severity, first.where[0].line) == ("sync_point", "warning", 45)
    low, high = first.estimated_speedup, first.evidence["speedup_at_most"]
    assert 1.0 < low <= high < 1.1  # what the GPU idles, though the CPU waits there for 43 % of the time
    assert not {"compute_bound", "spin_wait"} & found.keys()


@pytest.mark.parametrize("line", [FLOAT, ITEM])
def test_values_asked_for_in_other_words(line):
    assert findings("sync_item", *USUAL, ([line], 60))["sync_point"].where[0].line == {FLOAT: 46, ITEM: 45}[line]


def test_the_scalers_own_synchronisation_is_at_the_line_that_steps():
    assert findings("sync_item", *USUAL, ([STEP, SCALER], 60))["sync_point"].where[0].line == 44


def test_an_item_costs_nothing_where_the_gpu_is_the_bottleneck():
    found = findings("gpu_bound", ([ITEM], 90), *USUAL[:2], util=0.99, cpu=0.98)
    assert found["sync_point"].severity == "benign"
    assert found["sync_point"].headline == (
        "main() train.py:45 costs nothing here: it waits for the GPU, which is the bottleneck anyway"
    )
    assert found["spin_wait"].headline.startswith("98 % CPU at main() train.py:45 is CUDA polling")


def test_a_loop_without_synchronisation_has_none():
    assert "sync_point" not in findings("sync_item", *USUAL)
    assert "sync_point" not in findings("sync_item")


def test_full_cpu_in_backward_is_harmless_on_a_busy_gpu():
    found = findings("queue_full", ([BACKWARD, IN_BACKWARD], 90), *USUAL, util=0.99, cpu=0.4, autograd=0.6)
    assert "in backward() (its own thread)" in found["spin_wait"].headline
    assert found["spin_wait"].severity == "benign"


@pytest.mark.parametrize("cpu", [None, 0.5])
def test_no_spinning_without_a_busy_thread(cpu):
    assert "spin_wait" not in findings("queue_full", *USUAL, util=0.99, cpu=cpu)


def test_a_busy_thread_beside_an_idle_gpu_is_not_called_harmless():
    assert "spin_wait" not in findings("launch_bound", *USUAL, util=0.3, cpu=1.0)


# -- transfer_bound


def test_a_copy_that_all_wait_for():
    found = findings("transfer", *USUAL[:1], ([TO_DEVICE], 400), util=0.99, cpu=0.99)
    first = next(iter(found.values()))
    assert (first.rule, first.where[0].line) == ("transfer_bound", 41)
    assert first.share_of_step == pytest.approx(0.39, abs=0.03)  # truth: 9 of 17 ms; as much is certain
    assert first.estimated_speedup < first.evidence["speedup_at_most"] < 2
    assert "pin_memory=True" in first.action
    assert not {"compute_bound", "sync_point", "spin_wait"} & found.keys()


def test_waiting_at_a_copy_for_the_gpu_to_come_to_it_is_no_copy():
    found = findings("gpu_bound", ([TO_DEVICE], 90), *USUAL[:1], util=0.99, cpu=0.98)
    assert "transfer_bound" not in found
    assert found["sync_point"].severity == "benign"


def test_few_samples_at_the_copy_are_none():
    assert "transfer_bound" not in findings("transfer", *USUAL, ([TO_DEVICE], 5))


# -- the input and side work, on the GPU's clock


def test_a_wait_for_data_counts_as_far_as_the_gpu_idles():
    found = findings("data_starved", FETCHING, *USUAL)
    first = next(iter(found.values()))
    assert (first.rule, first.where[0].line) == ("input_bound", 40)
    assert first.share_of_step == pytest.approx(0.65, abs=0.03)  # 97 % of the CPU's time
    assert " % of every step the GPU waits for data: main()" in first.headline


def test_a_wait_for_data_that_launches_cover_is_none():
    """The same fetches; the GPU has enough to do meanwhile."""
    waiting = {"data": 60, "forward": 10, "backward": 20, "optimizer": 10}
    covered = {"data": (0, 0, 0), "forward": (30, 0, 0), "backward": (60, 0, 0), "optimizer": (10, 0, 0)}
    leads = dict.fromkeys(("fetch end", "backward begin", "backward end", "optimizer end"), (9000.0, 0.0))
    more = [record for t in range(5000, 5008) for record in (steps(t, waiting), gpu_time(t, covered, leads))]
    found = {f.rule: f for f in diagnose(session_of("gpu_bound", more=more))}
    assert "input_bound" not in found
    assert "compute_bound" in found


def test_side_work_counts_as_far_as_the_gpu_idles():
    side = {"data": 5, "forward": 10, "backward": 20, "optimizer": 5, "other": 60}
    saving = ([SAVE], 60)
    leads = dict.fromkeys(("backward begin", "backward end", "optimizer end"), (9000.0, 0.0))

    def found(other):
        on_gpu = {"forward": (40, 0, 0), "backward": (50, 0, 0), "other": other}
        more = [r for t in range(5000, 5008) for r in (steps(t, side), gpu_time(t, on_gpu, leads))]
        return findings("gpu_bound", saving, *USUAL, more=more)

    assert "side_work" not in found((10, 0, 0))
    idles = found((60, 0, 60))["side_work"]
    assert idles.share_of_step == pytest.approx(0.4)
    assert idles.headline.startswith("40 % of every step the GPU waits for side work outside the model: main()")
    assert idles.estimated_speedup is None  # how much of that it idles is not certain
    assert idles.evidence["gpu_idle_at_most"] == pytest.approx(0.4)


# -- without evidence


def test_without_gpu_events_all_abstain_and_say_so():
    session = session_of("gpu_bound", more=[process(markers=False, gpu_uuids=["GPU-x"])])
    session._gpu_time._stats.clear()
    rules = {finding.rule for finding in diagnose(session)}
    events = {"launch_bound", "sync_point", "transfer_bound", "queue_full", "spin_wait", "compute_bound"}
    assert not rules & events
    reasons = dict(unjudged(session))
    assert {reasons[rule] for rule in events} == {"no GPU events: attached without markers"}


def test_few_samples_are_told_as_the_reason():
    reasons = dict(unjudged(session_of("gpu_bound")))
    assert "too few stack samples" in reasons["sync_point"]
    assert "launch_bound" not in reasons


@pytest.mark.parametrize("stack", [[FORWARD, MODULE], [STEP]])
def test_launching_is_no_waiting(stack):
    assert "sync_point" not in findings("sync_item", (stack, 90))


def test_what_the_cpu_waits_for_is_not_judged_before_the_gpu_has_told():
    def early(first_s):
        session = session_of("gpu_bound", ([SAVE], 60), *USUAL)
        session._gpu_time._stats.clear()
        session.step_stats(PID).first_step_s = session.now_s - first_s
        return {finding.rule for finding in diagnose(session)}

    assert "side_work" not in early(3.0)
    assert "side_work" in early(20.0)


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("torch.cuda.synchronize()", "leave out torch.cuda.synchronize()"),
        ("scaler.step(optimizer)", "bfloat16 needs no scaler"),
        ("boxes = scores.nonzero()", "torch.where"),
        ("total += loss.item()", "loss.detach()"),
    ],
)
def test_the_advice_fits_the_line(source, advice):
    from tuimon.diagnosis.evidence.lines import HotFunction
    from tuimon.diagnosis.rules.gpu_sync import _advice
    from tuimon.records import Place

    assert advice in _advice(HotFunction(Place("train.py", 9, "main", source), 1.0, 10), by_transfer=False)


def test_idle_time_that_no_event_tells_is_bounded_by_the_cpu_and_by_nvml():
    """A synchronisation in forward: launches are ahead again at its end, so that its events show nothing."""
    from tuimon.diagnosis.evidence.evidence import evidence_of

    on_cpu = {"forward": 40, "backward": 50, "optimizer": 10}
    on_gpu = {"forward": (60, 0, 0), "backward": (30, 0, 0), "optimizer": (10, 0, 0)}
    leads = dict.fromkeys(("backward begin", "backward end", "optimizer end"), (900.0, 0.0))
    more = [record for t in range(5000, 5008) for record in (steps(t, on_cpu), gpu_time(t, on_gpu, leads))]

    def at_most(*records, **figures):
        samples = (
            ([FORWARD, MODULE, FORWARD_ITEM], 10),
            ([FORWARD, MODULE], 30),
            ([BACKWARD, IN_BACKWARD], 50),
            ([STEP], 10),
        )
        session = session_of("gpu_bound", *samples, more=[*more, *records], **figures)
        return evidence_of(session, PID).gpu_steps.idle_at_most

    strangers = [GpuProcess(PID, 1, 0.5), GpuProcess(9, 1, 0.5)]
    recent = [gpu(4990.0 + n, 0.95) for n in range(8)]
    shared = [gpu(4990.0 + n, 0.95, processes=strangers, pids=[PID, 9]) for n in range(8)]
    assert at_most() > 0.2
    assert at_most(*recent) == pytest.approx(0.08)
    assert at_most(*shared) == at_most()
