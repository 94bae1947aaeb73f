"""What no rule takes is still told: waits inside the passes."""

import pytest

from tests.diagnosis.cpu import HEALTHY, SIDE, training
from tests.session.records import frames, stacks, threads
from tuimon.diagnosis.judging import diagnose_run

LINES = frames(
    ("train.py", 61, "main", "loss = model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("model.py", 12, "forward", "self.lock.acquire()", True),
    ("model.py", 13, "forward", "time.sleep(0.02)", True),
    ("model.py", 14, "forward", "return F.relu(x)", True),
    ("train.py", 62, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 9, "tuimon_backward"),
    ("train.py", 64, "main", "torch.save(model, path)", True),
    first=20,
)
LOCK, SLEEP, COMPUTES, BACKWARD, SAVES = [20, 21, 22], [20, 21, 23], [20, 21, 24], [25, 26], [27]


def found(*counted, phases=HEALTHY):
    """By rule; the training thread runs, or wants to, for as long as it does not wait."""
    busy = threads(12, (100, "python", 0.7, "running"), cpu_ratio=0.7)
    windows = [stacks(t, *counted, (BACKWARD, 45)) for t in range(1, 13)]
    return {finding.rule: finding for finding in diagnose_run(training(phases, LINES, *windows, busy), [])}


@pytest.mark.parametrize(
    ("wait", "line", "what", "action"),
    [
        (LOCK, 12, "waits for a lock, a queue or a thread in forward", "see what holds up"),
        (SLEEP, 13, "sleeps in forward", "leave out the sleep at forward() model.py:13"),
    ],
)
def test_a_wait_in_the_model_is_told_and_the_loop_is_not_in_order(wait, line, what, action):
    by_rule = found((wait, 25), (COMPUTES, 15))
    told = by_rule["side_work"]
    assert (told.severity, told.estimated_speedup, told.where[0].line) == ("info", None, line)
    assert what in told.headline and action in told.action
    assert told.share_of_step == pytest.approx(0.25, abs=0.05)
    assert "in order" not in by_rule["compute_bound_cpu"].action


def test_a_model_that_computes_is_in_order():
    by_rule = found((LOCK, 2), (COMPUTES, 38))
    assert "side_work" not in by_rule and "in order" in by_rule["compute_bound_cpu"].action


def test_beside_what_is_worth_a_change_it_is_left_out():
    by_rule = found((LOCK, 15), (COMPUTES, 15), (SAVES, 25), phases=SIDE)
    assert by_rule["side_work"].where[0].line == 64
