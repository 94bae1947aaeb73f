"""Recorded trainings: what their timeline repeats is what was recorded, and what the GPU clock makes of it is true."""

from functools import cache
from itertools import cycle, pairwise

import pytest

from tests.diagnosis.gpu import gpu
from tests.gpu_simulator.comparison import event_errors_us, shares
from tests.gpu_simulator.recorded_session import RecordedTraining, recorded, records, session
from tests.gpu_simulator.recorded_timeline import timeline
from tests.gpu_simulator.recorded_timeline import truth as truth_of
from tests.gpu_simulator.training import PID
from tests.session.records import session_of
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.judging import diagnose_run
from tuimon.diagnosis.rule import SETTLED_S
from tuimon.records import Gpu, Steps
from tuimon.session.session import Session

#: Device idle, waiting for data, otherwise starved, held up by another stream: % of the step, by the recorded work
#: itself, determined without this code. Repeating the steps changes little of it.
RECORDED = {
    "resnet50_nw0_a": (42, 32, 9, 1),
    "resnet50_nw4_a": (23, 0, 21, 2),
    "dlrm_trace_diff_control": (15, 0, 24, 15),
    "linear_small": (63, 0, 62, 1),
    "resnet18_mallocs": (93, 0, 93, 0),
    "ddp_resnet_checkpoint": (0.5, 0, 0, 62),
    "ddp_df_index": (42, 0, 43, 20),
    "resnet_param": (56, 51, 4, 0),
}
SECONDS = 30.0
#: Not every step is timed: those that are may differ by so much from all, as a share of the step.
OF_STEPS = 0.01
#: Of a few seconds' steps, more.
OF_MOMENT = 0.03
#: Recording itself: the GPU comes to an event so much later than the CPU to its boundary, at least.
RECORDING_US = 15
#: A cause of waiting counts from here on.
MATTERS = 0.10
#: By what the compute stream waits for most: rules that are right to be first.
RIGHT = {
    "data": {"input_bound"},
    "starved": {"launch_bound", "sync_point", "transfer_bound"},
    "held up": {"comm_bound"},
    "nothing": {"compute_bound"},
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_repeated_timeline_is_what_was_recorded(name):
    truth = truth_of(name)
    data = truth.share("starved", "data") if "data" in truth.phases else 0.0
    starved = truth.share("starved") - data
    found = [100 * share for share in (truth.share("device_idle"), data, starved, truth.share("held_up"))]
    assert found == pytest.approx(RECORDED[name], abs=5)  # points: the seam between two periods


@pytest.mark.parametrize("name", RECORDED)
def test_nothing_runs_before_it_is_launched_or_beside_its_stream(name):
    repeats = timeline(name)
    works = list(repeats.repeated(repeats.main, range(3)))
    assert all(work.start_ns >= work.called_ns for work in works)
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(works))
    for mark in repeats.marks:
        assert repeats.reached_ns(mark.time_ns) >= mark.time_ns
        again_ns = repeats.reached_ns(mark.time_ns + 5 * repeats.period_ns)
        assert again_ns - repeats.reached_ns(mark.time_ns) == 5 * repeats.period_ns


@pytest.mark.parametrize("name", RECORDED)
def test_spans_of_recorded_phases_are_the_truth(name):
    truth, told = truth_of(name), shares(recorded(name)[1])
    for phase in truth.phases:
        ours = told.phases[phase]
        assert ours is not None
        assert ours.span == pytest.approx(truth.share("span", phase), abs=0.01), phase


@pytest.mark.parametrize(("name", "drift_ppm"), zip(RECORDED, cycle([-100, 100])))
def test_leads_of_a_recorded_training_are_right_whatever_the_drift(name, drift_ppm, seen):
    training = RecordedTraining(name, drift_ppm)
    training.repeat(SECONDS)
    errors = event_errors_us(training, seen)
    assert len(errors) >= 4
    assert all(error <= width + RECORDING_US for error, width in errors)


@cache
def judged(name, counters=True):
    """The GPU's steps of a whole recording, and what is found."""
    folded = session(name, counters=counters)
    return evidence_of(folded.over("whole").of(PID)).gpu.steps, diagnose_run(folded, ())


def right_first(truth):
    """Rules, or a rule's cause, that are right to be first."""
    freeing_ns = sum(wait.end_ns - wait.begin_ns for wait in truth.timeline.waits if wait.kind == "free")
    if freeing_ns > truth.timeline.period_ns / 2:
        return {"launch_bound/allocator"}
    data = truth.share("starved", "data") if "data" in truth.phases else 0.0
    causes = {"data": data, "starved": truth.share("starved") - data, "held up": truth.share("held_up")}
    most = max(causes, key=causes.__getitem__)
    return RIGHT[most if causes[most] >= MATTERS else "nothing"]


@pytest.mark.parametrize("counters", [True, False])
@pytest.mark.parametrize("name", RECORDED)
def test_bounds_of_idle_time_hold_and_nothing_that_waits_is_praised(name, counters):
    truth, (steps, (first, *others)) = truth_of(name), judged(name, counters)
    for phase in truth.phases:
        told, idle = steps.phases[phase].idle, truth.share("device_idle", phase)
        assert told.low - OF_STEPS <= idle <= told.high + OF_STEPS, phase
    assert steps.idle.low - OF_STEPS <= truth.share("device_idle") <= steps.idle.high + OF_STEPS
    waits = max(truth.share("starved") + truth.share("held_up"), truth.share("device_idle")) > MATTERS
    assert not (waits and any("as it should be" in finding.headline for finding in (first, *others)))
    assert {first.rule, f"{first.rule}/{first.cause}"} & right_first(truth)


@pytest.mark.parametrize("name", RECORDED)
def test_bounds_by_counters_are_narrow(name):
    steps, _ = judged(name)
    assert steps.idle.width <= 0.2


def test_counters_of_a_driver_that_was_lost_before_the_end_still_count():
    """As in a container, whose NVML stops when systemd reloads."""
    found = records("linear_small")
    kept = [each for each in found if not isinstance(each, Gpu) or each.t < found[-1].t - 10.0]
    steps = evidence_of(session_of(*kept).over("whole").of(PID)).gpu.steps
    assert steps.idle == pytest.approx(judged("linear_small")[0].idle, abs=0.02)


@pytest.mark.parametrize("name", ["ddp_df_index", "ddp_resnet_checkpoint", "dlrm_trace_diff_control"])
def test_what_is_certain_of_waiting_for_ranks_was_held_up_in_backward(name):
    folded, held_up = session(name), truth_of(name).share("held_up", "backward")
    for span in ("recent", "whole"):
        evidence = evidence_of(folded.over(span).of(PID))
        assert len(evidence.gpu_time.exchanges) >= 8
        exchange = evidence.exchanges[PID]
        assert exchange.share.low - OF_STEPS <= held_up <= exchange.share.high + OF_STEPS


@pytest.mark.parametrize(
    "name", ["resnet50_nw0_a", "resnet50_nw4_a", "resnet18_mallocs", "linear_small", "resnet_param"]
)
def test_an_exchange_on_another_stream_hides_idle_time_and_contradicts_nothing(name):
    exchanging = f"{name}+exchange"
    truth, (steps, (first, *_)), (_, (alone, *_)) = truth_of(exchanging), judged(exchanging), judged(name)
    assert truth.share("device_idle") < truth.share("starved") + OF_STEPS
    assert steps.idle.low - OF_STEPS <= truth.share("device_idle") <= steps.idle.high + OF_STEPS
    assert steps.idle.width <= 0.2
    assert steps.contradiction is None
    assert first.rule == alone.rule


def test_a_larger_batch_counts_that_ranks_exchange_no_more_for_it():
    """Its own kernels run for 37 % of the time, and the device idles for 46 %."""
    _, (first, *_) = judged("ddp_df_index")
    larger = next(fix for fix in first.fixes if "in each rank" in fix.action)
    assert 1.5 <= larger.gain.low <= larger.gain.high <= 2.0


def test_steps_are_timed_where_a_recorded_queue_is_far_ahead():
    _, marked = recorded("ddp_resnet_checkpoint")
    assert shares(marked).steps > 100


@pytest.mark.parametrize("name", RECORDED)
def test_set_up_before_the_first_step_makes_no_bound_false(name):
    """The GPU idles for 15 s, then steps begin: judged from moment to moment, as on the screen."""
    idle = truth_of(name).share("device_idle")
    header, process, lines, *found = records(name)
    found = [record for record in found if record.t < found[0].t + SECONDS]
    folded = Session()
    for record in (header, process, lines, *(gpu(found[0].t - back, 0.0) for back in range(16, 0, -1))):
        folded.add(record)
    judged = 0
    for record in found:
        folded.add(record)
        is_judged = isinstance(record, Steps) and record.t - found[0].t >= SETTLED_S
        steps = evidence_of(folded.over("recent").of(PID)).gpu.steps if is_judged else None
        if steps is not None:
            judged += 1
            assert steps.idle.low - OF_MOMENT <= idle <= steps.idle.high + OF_MOMENT, record.t
    assert judged
