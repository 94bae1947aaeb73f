"""Python code in the model, told from operations of torch by who holds the GIL."""

import pytest

from tests.diagnosis.cpu import BACKWARD, FORWARD, HEALTHY, SIDE, run
from tests.session.records import frames, stacks
from tuimon.records import Gil, GilCount, GilFunction

PACKAGES = "/lib/site-packages/"


def lines(leaf):
    return frames(
        ("net.py", 12, "forward", "x = x @ self.weight + self.bias", True),
        ("net.py", 30, "match", "pairs = [nearest(box) for box in boxes]", True),
        leaf,
        first=52,
    )


def found(*counted, held=(), leaf=(PACKAGES + "numpy/core/fromnumeric.py", 9, "sort"), phases=HEALTHY, t=12, looks=38):
    """What is found with these stacks, and functions that hold the GIL in so many of 38 samples."""
    functions = [GilFunction(100, "net.py", function, count) for function, count in held]
    threads = [GilCount(100, max(1, sum(count for _, count in held)))]
    gil = Gil(t=t, pid=100, samples=looks, threads=threads, functions=functions)
    return {finding.rule: finding for finding in run(phases, lines(leaf), stacks(12, *counted), gil)}


LOOP = (([*FORWARD, 53], 30), ([*FORWARD, 52], 10), (BACKWARD, 45))


def test_a_function_that_holds_the_gil_is_named_with_its_gain():
    findings = found(*LOOP, held=[("match", 12)])
    finding = findings["compute_bound_cpu"]
    assert (finding.cause, finding.severity, finding.where[0].line) == ("python", "warning", 30)
    assert finding.share_of_step == pytest.approx(0.85 * 30 / 85)
    assert finding.estimated_speedup == pytest.approx(1 / 0.7)
    assert len(finding.fixes) == 1


@pytest.mark.parametrize("held", [[], [("match", 2)], [("forward", 20)]])
def test_what_releases_the_gil_may_be_torch(held):
    finding = found(*LOOP, held=held)["compute_bound_cpu"]
    assert (finding.cause, finding.severity) == (None, "info")


@pytest.mark.parametrize(("t", "looks"), [(0.2, 38), (12, 20)])
def test_the_gil_of_the_set_up_says_nothing_of_the_steps_nor_do_a_few_samples(t, looks):
    assert found(*LOOP, held=[("match", 30)], t=t, looks=looks)["compute_bound_cpu"].cause is None


def test_another_package_is_not_torch_whoever_holds_the_gil():
    sorting = (([*FORWARD, 53, 54], 30), (BACKWARD, 45))
    assert found(*sorting)["compute_bound_cpu"].cause == "python"
    library = (PACKAGES + "pyro/poutine/trace.py", 9, "sort")
    assert found(*sorting, leaf=library, held=[("match", 30)])["compute_bound_cpu"].cause is None


def test_so_is_a_line_that_makes_tensors_of_numbers():
    leaf = ("net.py", 31, "solve", "order = torch.tensor(pairs)", True)
    finding = found(([*FORWARD, 54], 30), (BACKWARD, 45), leaf=leaf)["compute_bound_cpu"]
    assert (finding.cause, finding.where[0].line) == ("python", 31)


def test_attention_by_hand_is_torch_although_python_takes_a_root():
    leaf = ("net.py", 31, "attend", "att = q @ k.transpose(-2, -1) / math.sqrt(d)", True)
    finding = found(([*FORWARD, 54], 30), (BACKWARD, 45), leaf=leaf, held=[("main", 3)])["compute_bound_cpu"]
    assert (finding.cause, finding.severity) == (None, "info")


def test_its_share_of_each_phase_counts_for_as_long_as_that_takes():
    """Of 40 ms of forward two thirds, though samples saw much more of backward than its 45 ms."""
    samples = ([*FORWARD, 53], 30), ([*FORWARD, 52], 15), (BACKWARD, 90)
    finding = found(*samples, held=[("match", 12)])["compute_bound_cpu"]
    assert finding.share_of_step == pytest.approx(0.4 * 2 / 3)
    assert finding.evidence["hot_share"] == pytest.approx(0.4 * 2 / 3 / 0.85)


def test_a_stack_that_ends_where_the_model_is_called_does_not_tell_what_that_runs():
    """Of 40 known ones 30 are in the function; where nothing goes on from that call, all are known."""
    merged = (FORWARD, 15)
    finding = found(*LOOP, merged, held=[("match", 12)])["compute_bound_cpu"]
    assert finding.share_of_step == pytest.approx(0.4 * 30 / 40)
    compiled = found(merged, ([FORWARD[0], 53], 30), (BACKWARD, 45), held=[("match", 12)])
    assert compiled["compute_bound_cpu"].share_of_step == pytest.approx(0.4 * 30 / 45)


def test_python_that_takes_little_of_the_step_is_the_models_price():
    few = (([*FORWARD, 53], 10), ([*FORWARD, 52], 30), (BACKWARD, 45))
    assert found(*few, held=[("match", 12)])["compute_bound_cpu"].cause is None


def test_it_stands_beside_what_else_holds_the_training_up():
    findings = found(*LOOP, held=[("match", 12)], phases=SIDE)
    assert {"side_work", "compute_bound_cpu"} <= set(findings)
    assert findings["compute_bound_cpu"].cause == "python"
