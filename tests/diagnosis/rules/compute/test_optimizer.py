"""The update of the parameters on literal sessions: torch's, and one that is written by hand."""

from typing import Any

import pytest

from tests.diagnosis.cpu import AUGMENT, BACKWARD, FORWARD, NO_GPU, run
from tests.session.records import by_rule, frames, loop, one_process, stacks, thread
from tuimon.diagnosis.finding import Fix
from tuimon.records import Frame, Gil, GilCount, GilFunction, OptimizerFacts

TORCH = "/lib/site-packages/torch"
LOOP = frames(
    ("train.py", 49, "main", "optimizer.step()", True),
    (f"{TORCH}/optim/optimizer.py", 485, "wrapper"),  # 55
    ("lamb.py", 30, "step", "self.update_rows(p)", True),
    ("lamb.py", 20, "update_rows", "trust = row.norm() / gradient.norm()", True),
    (f"{TORCH}/_tensor.py", 800, "norm"),
    ("lamb.py", 21, "update_rows", "row -= trust * gradient", True),
    (f"{TORCH}/optim/adam.py", 9, "step"),  # 60
    (f"{TORCH}/optim/sgd.py", 300, "_single_tensor_sgd"),
    (f"{TORCH}/optim/adam.py", 400, "_single_tensor_adam"),
    ("muon.py", 24, "orthogonalized", "wide = a * wide + (b * gram + c * gram @ gram) @ wide", True),
    ("muon.py", 32, "step", "buffer.lerp_(p.grad, 1 - momentum)", True),
    (f"{TORCH}/optim/_muon.py", 50, "_zeropower_via_newtonschulz"),  # 65
    Frame("train.py", 70, "main", "optimizer.step()", True, loop=True, loops=1),
    Frame("train.py", 68, "main", "loss.backward()", True, loop=True, loops=1),
    Frame("train.py", 69, "main", "clip_grad_norm_(group['params'], 1.0)", True, loop=True, loops=2),
    Frame("train.py", 69, "main", "clip_grad_norm_(model.parameters(), 1.0)", True, loop=True, loops=1),
    Frame("clip.py", 5, "clip", "clip_grad_norm_(parameter, limit)", True, loop=True, loops=1),  # 70
    (f"{TORCH}/nn/utils/clip_grad.py", 40, "_no_grad_wrapper"),
    (f"{TORCH}/optim/lbfgs.py", 380, "step"),
    first=54,
)
BY_ROWS = ((FORWARD, 35), (BACKWARD, 40), ([54, 55, 56, 57, 58], 12), ([54, 55, 56, 59], 8))
BY_TORCH = ((FORWARD, 35), (BACKWARD, 40), ([54, 55, 60, 61], 20))
BY_ADAM = ((FORWARD, 35), (BACKWARD, 40), ([54, 55, 60, 62], 20))
BY_TORCH_WITHIN = ((FORWARD, 35), (BACKWARD, 40), ([54, 55, 56, 57, 55, 60, 61], 20))
FIFTH = {"data": 1, "forward": 36, "backward": 40, "optimizer": 20, "other": 3}
LONG = {"data": 2, "forward": 25, "backward": 30, "optimizer": 40, "other": 3}


def found(phases: dict[str, int], *counted: Any, more: Any = (), windows: int = 8, **facts: Any) -> Any:
    """The rule's finding on steps with these samples, of a process that reports these facts; None: it has none."""
    sampled = stacks(windows, *counted) if counted else ()
    session = one_process(NO_GPU, AUGMENT, LOOP, loop(windows, phases), sampled, more, **facts)
    return by_rule(session).get("optimizer_bound")


def holding(times: int) -> Gil:
    """The GIL was found held so many times of 100 in ``update_rows``."""
    functions = [GilFunction(100, "lamb.py", "update_rows", times)]
    return Gil(t=8, pid=100, samples=100, threads=[GilCount(100, max(1, times))], functions=functions)


def test_an_update_row_by_row_is_named_with_its_gain() -> None:
    finding = found(FIFTH, *BY_ROWS, more=holding(8))
    assert (finding.severity, finding.where[0].file, finding.where[0].line) == ("warning", "lamb.py", 20)
    assert finding.share_of_step == pytest.approx(0.2)
    assert finding.estimated_speedup == pytest.approx(1 / 0.8)
    assert "20 % of each step" in finding.headline and "tensors one by one" in finding.headline
    assert finding.where[0].function == "update_rows" and "whole tensors" in finding.action


@pytest.mark.parametrize(
    ("counted", "held"),
    [(BY_ROWS, 2), (BY_TORCH, 0), (BY_TORCH_WITHIN, 8)],
    ids=["large operations", "torch's", "torch's within"],
)
def test_such_a_part_is_usual_of_one_whose_work_is_torchs(counted: Any, held: int) -> None:
    assert found(FIFTH, *counted, more=holding(held)) is None


@pytest.mark.parametrize(("share", "windows", "is_told"), [(34, 2, False), (34, 6, True), (50, 2, True)])
def test_a_share_near_the_threshold_waits_until_the_table_has_settled(share: int, windows: int, is_told: bool) -> None:
    phases = {"forward": 40, "backward": 60 - share, "optimizer": share}
    assert (found(phases, *BY_TORCH, windows=windows) is not None) == is_told


def test_adam_on_the_cpu_is_fused_by_one_word() -> None:
    first, sparse, *_ = found(LONG, *BY_ADAM).fixes
    assert "fused=True" in first.action
    assert (first.estimated_speedup, *first.gain) == pytest.approx(
        (1 / (1 - 0.4 * 0.7), 1 / (1 - 0.4 * 0.55), 1 / (1 - 0.4 * 0.85))
    )
    assert "SparseAdam" in sparse.action


def test_an_update_longer_than_what_it_follows_touches_too_many_parameters() -> None:
    first, fused, *_ = found({"data": 5, "forward": 20, "backward": 25, "optimizer": 50}, *BY_ADAM).fixes
    assert "SparseAdam" in first.action
    assert "fused=True" in fused.action


def test_a_fused_form_that_gains_little_is_no_fix() -> None:
    assert not any("fused=True" in fix.action for fix in found(LONG, *BY_TORCH).fixes)


@pytest.mark.parametrize("delay", [0.0, 0.6])  # a part of the time, waiting for a core
@pytest.mark.parametrize(
    ("update", "is_told"),
    [
        ((([54, 55, 64, 63], 15), ([54, 55, 64], 5)), False),  # products of matrices, and little beside
        ((([54, 55, 64, 63], 3), ([54, 55, 64], 17)), True),
        ((([54, 55, 65], 20),), False),
        ((([54, 55, 72], 20),), False),  # directions of L-BFGS
    ],
)
def test_an_update_that_multiplies_matrices_computes(update: Any, is_told: bool, delay: float) -> None:
    busy = thread(12, 1.0 - delay, delay)
    phases = {"data": 0, "forward": 20, "backward": 34, "optimizer": 45, "other": 1}
    findings = {each.rule: each for each in run(phases, LOOP, stacks(12, *BY_TORCH[:2], *update), busy)}
    assert ("optimizer_bound" in findings) == is_told
    assert is_told or "mostly optimizer" in findings["compute_bound_cpu"].headline


def test_no_fused_optimizer_is_advised_where_it_is_one() -> None:
    fused, unfused = (OptimizerFacts("AdamW", "torch", fused=fused, groups=1, tensors=80) for fused in (True, False))
    assert not any("fused" in fix.action for fix in found(LONG, optimizers=[fused]).fixes)
    assert any("fused" in fix.action for fix in found(LONG, optimizers=[unfused]).fixes)


def test_a_fused_update_of_one_tensor_a_group_needs_one_group() -> None:
    def first(groups: int, elements: int) -> Fix:
        facts = OptimizerFacts("AdamW", "torch", fused=True, groups=groups, tensors=80, elements=elements)
        return found(LONG, optimizers=[facts]).best

    grouped = first(80, 80 * 1024)
    assert "one group of parameters for each learning rate and decay, not 80" in grouped.action
    assert grouped.estimated_speedup == pytest.approx(1 / (1 - 0.4 * 0.7), rel=0.01)
    assert "one group" not in first(2, 80 * 1024).action
    assert "one group" not in first(80, 80 << 20).action  # the work on such tensors takes longer than the calls


def test_an_update_of_one_tensor_a_group_that_is_not_fused_needs_both() -> None:
    facts = OptimizerFacts("AdamW", "torch", groups=80, tensors=80, elements=80 * 1024)
    told = found(LONG, *BY_TORCH, optimizers=[facts])
    assert "not 80 of one tensor each" in told.action and told.action.endswith("; and set fused=True")


@pytest.mark.parametrize(
    ("lines", "groups", "line", "gain", "action"),
    [
        (([70, 71],), 1, 5, 1 / 0.7, "with one call, not tensor by tensor"),
        (([68, 71],), 80, 69, 1 / (1 - 0.7 * 0.4), "not 80 of one tensor each"),
        (([68, 71],), 2, None, None, None),  # a group has many tensors
        (([69, 71],), 80, None, None, None),  # in the training's own loop
    ],
)
def test_clipping_tensor_by_tensor_is_part_of_the_update(
    lines: Any, groups: int, line: Any, gain: Any, action: Any
) -> None:
    facts = OptimizerFacts("AdamW", "torch", fused=True, groups=groups, tensors=80, elements=80 * 1024)
    phases = {"data": 1, "forward": 24, "backward": 35, "optimizer": 10, "other": 30}
    counted = ((FORWARD, 24), ([67, BACKWARD[1]], 35), ([66, 55, 60], 10), *((each, 30) for each in lines))
    told = found(phases, *counted, optimizers=[facts])
    assert (told is not None) is (line is not None)
    if told is not None:
        assert (told.where[0].line, told.share_of_step) == (line, pytest.approx(0.4))
        assert told.estimated_speedup == pytest.approx(gain, rel=0.01) and action in told.action
        assert "30 % clip gradients tensor by tensor" in told.headline
