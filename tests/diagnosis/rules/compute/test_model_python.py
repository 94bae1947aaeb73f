"""Python code in the model, told from operations of torch by who holds the GIL."""

import pytest

from tests.diagnosis.cpu import HEALTHY, SIDE, run
from tests.session.records import frames, stacks
from tuimon.records import Gil, GilCount, GilFunction

MODULE = ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl")
PACKAGES = "/lib/site-packages/"


def lines(leaf):
    return frames(
        ("train.py", 48, "main", "loss = model(x)", True),
        MODULE,
        ("net.py", 12, "forward", "x = x @ self.weight + self.bias", True),
        ("net.py", 30, "match", "pairs = [nearest(box) for box in boxes]", True),
        leaf,
        ("train.py", 49, "main", "loss.backward()", True),
        ("/opt/tuimon/agent/hooks.py", 9, "tuimon_backward"),
        ("/lib/site-packages/torch/distributions/constraints.py", 300, "check"),
        first=50,
    )


def found(*counted, held=(), leaf=(PACKAGES + "numpy/core/fromnumeric.py", 9, "sort"), phases=HEALTHY, t=12, looks=38):
    """What is found with these stacks, and functions that hold the GIL in so many of 38 samples."""
    functions = [GilFunction(100, "net.py", function, count) for function, count in held]
    threads = [GilCount(100, max(1, sum(count for _, count in held)))]
    gil = Gil(t=t, pid=100, samples=looks, threads=threads, functions=functions)
    return {finding.rule: finding for finding in run(phases, lines(leaf), stacks(12, *counted), gil)}


LOOP = (([50, 51, 53], 30), ([50, 51, 52], 10), ([55, 56], 45))


@pytest.mark.parametrize("held", [[], [("match", 2)], [("forward", 20)]])
def test_what_releases_the_gil_may_be_torch(held):
    finding = found(*LOOP, held=held)["compute_bound_cpu"]
    assert (finding.cause, finding.severity) == (None, "info")


@pytest.mark.parametrize(("t", "looks"), [(0.2, 38), (12, 20)])
def test_the_gil_of_the_set_up_says_nothing_of_the_steps_nor_do_a_few_samples(t, looks):
    assert found(*LOOP, held=[("match", 30)], t=t, looks=looks)["compute_bound_cpu"].cause is None


def test_another_package_is_not_torch_whoever_holds_the_gil():
    sorting = (([50, 51, 53, 54], 30), ([55, 56], 45))
    assert found(*sorting)["compute_bound_cpu"].cause == "python"
    library = (PACKAGES + "pyro/poutine/trace.py", 9, "sort")
    assert found(*sorting, leaf=library, held=[("match", 30)])["compute_bound_cpu"].cause is None


@pytest.mark.parametrize(("call", "packages"), [("solve(costs)", "scipy"), ("torch.tensor(pairs)", "")])
def test_so_is_a_line_on_which_only_other_packages_work(call, packages):
    leaf = ("net.py", 31, "solve", f"order = {call}", True, "", packages)
    finding = found(([50, 51, 54], 30), ([55, 56], 45), leaf=leaf)["compute_bound_cpu"]
    assert (finding.cause, finding.where[0].line) == ("python", 31)


def test_attention_by_hand_is_torch_although_python_takes_a_root():
    leaf = ("net.py", 31, "attend", "att = q @ k.transpose(-2, -1) / math.sqrt(d)", True)
    finding = found(([50, 51, 54], 30), ([55, 56], 45), leaf=leaf, held=[("main", 3)])["compute_bound_cpu"]
    assert (finding.cause, finding.severity) == (None, "info")


@pytest.mark.parametrize(("held", "cause"), [(16, "python"), (6, None)])
def test_operations_that_are_all_overhead_hold_the_gil_for_a_part_of_their_time(held, cause):
    leaf = ("net.py", 31, "sum_up", "total = total + x[i].mean()", True)
    lines = (([50, 51, 54], 40), ([55, 56], 40))
    finding = found(*lines, leaf=leaf, held=[("sum_up", held)], looks=100)["compute_bound_cpu"]
    assert finding.cause == cause
    assert cause is None or "tiny operations" in finding.headline


def test_among_other_lines_they_do_not_say_which_line_it_is():
    leaf = ("net.py", 13, "forward", "x = x @ self.other", True)
    finding = found(
        ([50, 51, 54], 20), ([50, 51, 52], 20), ([55, 56], 40), leaf=leaf, held=[("forward", 16)], looks=100
    )["compute_bound_cpu"]
    assert finding.cause is None


LOOPING = ("net.py", 29, "normaliser", "scores.append(torch.logsumexp(alpha + moves[tag], 1))", True)
BY_TAG = (([50, 51, 54], 20), ([50, 51, 52], 20), ([55, 56], 45))


@pytest.mark.parametrize(("no_grad", "backward"), [(None, 0.45 / 2), ((20, 33), 0.0)])
def test_a_loop_over_small_operations_costs_its_backward_too(no_grad, backward):
    leaf = (*LOOPING, "", "", no_grad, None, (), True)
    finding = found(*BY_TAG, leaf=leaf, held=[("normaliser", 2)], looks=40)["compute_bound_cpu"]
    assert (finding.cause, finding.where[0].line) == ("python", 29)
    assert "20 % of each step" in finding.headline and "tiny operations" in finding.headline
    assert (finding.where[0].function, finding.where[0].line) == ("normaliser", 29)
    assert ("into their backward" in finding.headline) == (backward > 0)
    assert finding.best.gain.low == pytest.approx(1 / 0.8 if backward else 1 / 0.9)
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 0.2 - backward), rel=0.05)


@pytest.mark.parametrize(("checks", "first"), [(50, "slow_setting"), (20, "compute_bound_cpu")])
def test_checks_in_a_loop_over_small_operations_go_with_their_setting(checks, first):
    """They come first where they are a large part of it: what they take is measured."""
    leaf = (*LOOPING, "", "", (20, 33), None, (), True)
    stack = (([50, 51, 54], 200 - checks), ([50, 51, 54, 57], checks), ([50, 51, 52], 25), ([55, 56], 275))
    findings = found(*stack, leaf=leaf, held=[("normaliser", 20)], looks=100)
    assert next(iter(findings)) == first
    (fix,) = findings["compute_bound_cpu"].fixes
    assert (first == "slow_setting") == (fix.estimated_speedup is None)
    if first == "slow_setting":
        assert "validate_args" in findings[first].action
    assert fix.gain.high == pytest.approx(1 / (1 - 0.4 * (200 - checks) / 225), rel=0.1)


@pytest.mark.parametrize("backward", [28, 35], ids=["less", "too little is left to be told"])
def test_backward_of_the_rest_of_the_model_takes_at_least_as_long_as_its_forward_pass(backward):
    leaf = (*LOOPING, "", "", None, None, (), True)
    phases = {"data": 1, "forward": 60, "backward": backward, "optimizer": 38 - backward, "other": 1}
    finding = found(*BY_TAG, leaf=leaf, held=[("normaliser", 6)], looks=40, phases=phases)["compute_bound_cpu"]
    assert finding.estimated_speedup == pytest.approx(1 / 0.7, rel=0.05)
    assert "into their backward" not in finding.headline


@pytest.mark.parametrize(("loop", "held"), [(True, 1), (False, 2)], ids=["large operations", "no loop"])
def test_other_operations_of_torch_may_be_large(loop, held):
    leaf = (*LOOPING, "", "", None, None, (), loop)
    finding = found(*BY_TAG, leaf=leaf, held=[("normaliser", held)], looks=40)["compute_bound_cpu"]
    assert (finding.cause, finding.severity) == (None, "info")


def test_the_loop_of_the_training_itself_is_none_of_the_models():
    leaf = ("train.py", 48, "main", "loss = torch.square(model(x) - y).mean()", True, "", "", None, None, (), True)
    inline = (([54], 40), ([50, 51, 52], 10), ([55, 56], 45))
    assert found(*inline, leaf=leaf, held=[("main", 8)], looks=40)["compute_bound_cpu"].cause is None


def test_its_share_of_each_phase_counts_for_as_long_as_that_takes():
    """Of 40 ms of forward two thirds, though samples saw much more of backward than its 45 ms."""
    finding = found(([50, 51, 53], 30), ([50, 51, 52], 15), ([55, 56], 90), held=[("match", 12)])["compute_bound_cpu"]
    assert finding.share_of_step == pytest.approx(0.4 * 2 / 3)
    assert finding.evidence["hot_share"] == pytest.approx(0.4 * 2 / 3 / 0.85)


def test_a_stack_that_ends_where_the_model_is_called_does_not_tell_what_that_runs():
    """Of 40 known ones 30 are in the function; where nothing goes on from that call, all are known."""
    merged = ([50, 51], 15)
    finding = found(*LOOP, merged, held=[("match", 12)])["compute_bound_cpu"]
    assert finding.share_of_step == pytest.approx(0.4 * 30 / 40)
    compiled = found(merged, ([50, 53], 30), ([55, 56], 45), held=[("match", 12)])
    assert compiled["compute_bound_cpu"].share_of_step == pytest.approx(0.4 * 30 / 45)


def test_python_that_takes_little_of_the_step_is_the_models_price():
    few = (([50, 51, 53], 10), ([50, 51, 52], 30), ([55, 56], 45))
    assert found(*few, held=[("match", 12)])["compute_bound_cpu"].cause is None


def test_it_stands_beside_what_else_holds_the_training_up():
    findings = found(*LOOP, held=[("match", 12)], phases=SIDE)
    assert {"side_work", "compute_bound_cpu"} <= set(findings)
    assert findings["compute_bound_cpu"].cause == "python"
