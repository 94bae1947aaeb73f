"""What could not be judged, and why."""

import pytest

from tests.diagnosis.gpu import USUAL, session_of
from tests.session.records import by_rule, frames, header, process, reason_by_rule, stacks, steps
from tests.session.records import session_of as records_of
from tuimon.records import Notice


def reasons_of(*records):
    """Why rules could not judge a session of these records."""
    return reason_by_rule(records_of(*records))


def test_what_could_not_be_judged_is_reported_with_its_reason():
    denied = Notice(t=0, pid=0, source="stacks", level="warning", message="ptrace is denied")
    reasons = reasons_of(header(), process(), denied)
    assert reasons["input_bound"] == "no step has ended"
    assert reasons["places"] == "no stack samples: ptrace is denied"
    assert "schedstat" in reasons["cpu_oversubscribed"]
    assert "launch_bound" not in reasons  # no GPU: nothing to judge


@pytest.mark.parametrize(("stack", "asks"), [((0,), False), ((0, 1), True)])
def test_a_loop_that_only_runs_a_model_is_told_how_to_mark_its_steps(stack: tuple[int, ...], asks: bool):
    places = [("a.py", 7, "main", "model(x)", True), ("/v/site-packages/torch/nn/modules/module.py", 2, "_call_impl")]
    decoding = frames(("a.py", 8, "main", "decode(y)", True), first=2)
    reasons = reasons_of(header(), process(), frames(*places), decoding, stacks(1.0, (stack, 1), ((2,), 60)))
    assert ("call tuimon.step() once a step" in reasons["input_bound"]) == asks


def test_a_step_that_was_not_timed_has_ended_all_the_same():
    untimed = steps(2.0, {}, count=1, timed=0, slowed=1, slowed_ns=10**9)
    assert reasons_of(header(), process(), untimed)["input_bound"] == "no step that has ended was timed"


@pytest.mark.parametrize("reason", ["no stack samples: ptrace is denied", "no stack samples of process 7: it ended"])
def test_that_there_are_no_samples_is_said_once(reason: str):
    notice = Notice(t=0, pid=0, source="stacks", level="warning", message=reason)
    assert reasons_of(header(), process(), notice)["places"] == reason


def test_nothing_is_judged_without_a_training():
    assert list(reasons_of()) == ["all"]


def test_how_much_training_the_samples_may_have_missed_is_said():
    """A loop that spends nearly all of its time beside the model shows backward in few samples."""
    reason = "no markers came; and "
    few = header(), process(markers=False), frames(("train.py", 18, "note_stats")), stacks(1.0, ([0], 2))
    assert reasons_of(*few)["input_bound"] == reason + "too few samples to find a training loop"
    assert reasons_of(*few, stacks(2.0, ([0], 148)))["input_bound"] == (
        reason
        + "none of 150 samples is in backward or an update: if the process trains, these take less than 2 % of its time"
        " (--inject would measure them)"
    )


@pytest.mark.parametrize("markers", [False, True])
def test_the_precision_of_a_training_that_reports_nothing_is_not_known(markers: bool):
    torch = "/v/site-packages/torch/autograd/__init__.py"
    places = [("a.py", 7, "main", "loss.backward()", True), (torch, 2, "backward")]
    made = [steps(2.0, {"backward": 10})] if markers else []
    reasons = reasons_of(header(), process(markers=markers), frames(*places), stacks(1.0, ([0, 1], 60)), *made)
    assert ("--inject" in reasons.get("precision and tracers", "")) == (not markers)


def test_without_gpu_events_all_abstain_and_say_so():
    session = session_of("gpu_bound", more=[process(markers=False, gpu_uuids=["GPU-x"])])
    session.gpu_times.clear()
    rules = by_rule(session)
    events = {"launch_bound", "sync_point", "transfer_bound", "queue_full", "spin_wait", "compute_bound"}
    assert not rules.keys() & events
    reasons = reason_by_rule(session)
    assert {reasons[rule] for rule in events} == {"no GPU events: no markers came"}


def test_few_samples_are_reported_as_the_reason():
    reasons = reason_by_rule(session_of("gpu_bound"))
    assert "too few stack samples" in reasons["sync_point"]
    assert "launch_bound" not in reasons


def test_what_a_gpu_does_not_measure_is_reported():
    reasons = reason_by_rule(session_of("gpu_bound", *USUAL, util=0.9))
    assert "GPM" in reasons["low_precision_unused"]
    assert not {"throttled", "small_batch", "launch_bound"} & reasons.keys()
    assert "no figures of the GPU" in reason_by_rule(session_of("gpu_bound", *USUAL))["throttled"]
