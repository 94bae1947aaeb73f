"""Optimizer, evaluation and ranks on literal sessions."""

import pytest

from tests.session.records import frames, header, process, stacks, steps
from tuimon.diagnosis import diagnose, unjudged
from tuimon.records import Notice
from tuimon.session.session import Session

LINES = frames(
    ("train.py", 10, "main", "for x, y in loader:", True),
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("train.py", 13, "main", "opt.step()", True),
    ("/lib/site-packages/torch/optim/adam.py", 9, "step"),
    ("train.py", 15, "main", "validate(model)", True),
    ("train.py", 30, "validate", "right += model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("train.py", 11, "main", "loss = model(x)", True),
)
TRAINING = (([1, 2], 30), ([3, 4], 10), ([8, 7], 20))


def session_of(*records):
    session = Session()
    for record in (header(), process(), LINES, *records):
        session.add(record)
    return session


def found(session):
    return {finding.rule: finding for finding in diagnose(session)}


def test_an_update_of_half_the_step_is_told_with_its_line():
    phases = {"data": 5, "forward": 20, "backward": 25, "optimizer": 50}
    windows = [steps(t, phases, first_index=10 * t) for t in range(1, 9)]
    findings = found(session_of(*windows, stacks(8, *TRAINING)))
    finding = findings["optimizer_bound"]
    assert (finding.severity, finding.where[0].line, finding.estimated_speedup) == ("warning", 13, None)
    assert finding.headline == "50 % of every step is the optimizer's update: main() train.py:13"
    assert "compute_bound_cpu" not in findings  # its "the loop is in order" would be wrong


def test_a_usual_update_is_not_told():
    phases = {"data": 5, "forward": 35, "backward": 40, "optimizer": 20}
    assert "optimizer_bound" not in found(session_of(*(steps(t, phases, first_index=10 * t) for t in range(1, 9))))


def test_evaluation_is_found_in_the_function_that_training_never_passes():
    phases = {"data": 5, "forward": 15, "backward": 20, "eval": 60}
    windows = [steps(t, phases, first_index=10 * t, eval_count=5) for t in range(1, 9)]
    finding = found(session_of(*windows, stacks(8, *TRAINING, ([5, 6, 7], 90))))["side_work"]
    assert (finding.cause, finding.where[0].line, finding.severity) == ("evaluation", 30, "critical")
    assert finding.share_of_step == pytest.approx(0.6)
    assert finding.estimated_speedup == pytest.approx(2.5)


def ranks(late_phases, other_phases):
    session = session_of()
    for pid, rank, phases in ((100, 0, other_phases), (101, 1, late_phases)):
        session.add(process(pid, rank=rank, world_size=2))
        for t in range(1, 9):
            session.add(steps(t, phases, pid=pid, first_index=10 * t))
    session.add(stacks(8, ([1, 2], 20), ([8, 7], 60), pid=101))
    return found(session)


def test_the_rank_that_waits_least_in_backward_is_the_culprit():
    late, other = {"forward": 60, "backward": 40}, {"forward": 20, "backward": 80}
    finding = ranks(late, other)["straggler_rank"]
    assert (finding.severity, finding.evidence["rank"], finding.where[0].line) == ("critical", 1, 11)
    assert finding.share_of_step == pytest.approx(0.4)
    assert finding.headline == (
        "rank 0 waits 40 % of every step for rank 1, 40 ms longer in forward at main() train.py:11"
    )


def test_a_short_backward_without_anything_longer_is_no_straggler():
    assert "straggler_rank" not in ranks({"forward": 20, "backward": 50}, {"forward": 20, "backward": 80})


def test_even_ranks_have_no_straggler():
    even = {"forward": 50, "backward": 50}
    assert "straggler_rank" not in ranks(even, even)


def test_what_could_not_be_judged_is_told_with_its_reason():
    session = session_of(Notice(t=0, pid=0, source="stacks", level="warning", message="ptrace is denied"))
    reasons = dict(unjudged(session))
    assert reasons["input_bound"] == "no step has ended yet"
    assert reasons["places"] == "no stack samples: ptrace is denied"
    assert "schedstat" in reasons["cpu_oversubscribed"]
    assert "launch_bound" not in reasons  # no GPU: nothing to judge


def test_nothing_is_judged_without_a_training():
    assert [rule for rule, _ in unjudged(Session())] == ["all"]


def test_side_work_in_the_model_is_told_at_the_line_that_calls_it():
    lines = frames(
        ("train.py", 60, "check", "model(probe)", True),
        ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
        ("model.py", 7, "forward", "return self.conv(x)", True),
        ("train.py", 16, "main", "check(model)", True),
        first=30,
    )
    phases = {"data": 5, "forward": 30, "backward": 35, "optimizer": 5, "other": 25}
    windows = [steps(t, phases, first_index=10 * t) for t in range(1, 9)]
    finding = found(session_of(*windows, lines, stacks(8, *TRAINING, ([33, 30, 31, 32], 25))))
    assert finding["side_work"].where[0].line == 60


@pytest.mark.parametrize(
    ("works_on", "told"), [("/lib/site-packages/torch/nn/modules/module.py", False), ("io.py", True)]
)
def test_a_little_evaluation_that_no_marker_tells_is_no_side_work(works_on, told):
    lines = frames(
        ("train.py", 60, "after", "right += model(x)", True),
        (works_on, 99, "_call_impl"),
        ("train.py", 16, "main", "", True),
        first=30,
    )
    phases = {"between": 60, "backward": 35, "optimizer": 5}
    windows = [steps(t, phases, first_index=10 * t) for t in range(1, 9)]
    session = session_of(*windows, lines, stacks(8, ([1, 2], 300), ([3, 4], 100), ([8, 7], 500), ([32, 30, 31], 140)))
    other = next(row for row in session.phases(100).rows if row.name == "other")
    assert other.estimated and 0.10 < other.share < 0.20
    assert ("side_work" in found(session)) == told
