"""An update on a GPU that goes through many tensors: fused where that is possible and not done."""

import pytest

from tests.diagnosis.cpu import AUGMENT, BACKWARD, FORWARD
from tests.session.records import frames, process, session_of, stacks, steps
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.rules.compute import fused_fix
from tuimon.records import OptimizerFacts

TORCH = "/lib/site-packages/torch"
LINES = frames(
    ("train.py", 49, "main", "optimizer.step()", True),
    (f"{TORCH}/optim/adam.py", 9, "step"),
    (f"{TORCH}/optim/adam.py", 400, "_single_tensor_adam"),
    (f"{TORCH}/optim/adam.py", 700, "_multi_tensor_adam"),
    (f"{TORCH}/optim/adam.py", 900, "_fused_adam"),
    ("/lib/site-packages/transformers/trainer.py", 2000, "_inner_training_loop"),
    first=12,
)
SINGLE, MULTI, FUSED, TRAINER = 14, 15, 16, 17


def fix(innermost, *optimizers, gpu=True, of=-1):
    outer = [of] if of >= 0 else []
    counted = (([*outer, *FORWARD], 20), ([*outer, *BACKWARD], 20), ([*outer, 12, 13, innermost], 60))
    facts = {"gpu_uuids": ["GPU-0"], "torch": "2.11.0+cu130"} if gpu else {}
    window = steps(1.0, {"forward": 20, "backward": 20, "optimizer": 60})
    session = session_of(
        process(100, optimizers=list(optimizers), **facts), AUGMENT, LINES, window, stacks(1.0, *counted)
    )
    return fused_fix(evidence_of(session.over("recent").of(100)), 1.0)


def adamw(**more):
    return OptimizerFacts(**{"name": "AdamW", "package": "torch", "tensors": 800} | more)


def test_tensors_one_by_one_are_fused_with_nearly_all_of_their_time_gained():
    found = fix(SINGLE, adamw())
    assert "fused=True for AdamW" in found.action and "some for each tensor" in found.action
    assert (found.estimated_speedup, *found.gain) == pytest.approx(
        (1 / (1 - 0.6 * 0.9), 1 / (1 - 0.6 * 0.8), 1 / (1 - 0.6))
    )


def test_a_foreach_update_gains_less():
    single, together = fix(SINGLE, adamw()), fix(MULTI, adamw())
    assert 1.0 < together.gain.low < together.estimated_speedup < single.estimated_speedup


def test_what_is_fused_already_or_on_a_cpu_is_not_advised():
    """There another rule speaks."""
    assert fix(FUSED, adamw(fused=True)) is None
    assert fix(SINGLE, adamw(fused=True)) is None
    assert fix(SINGLE, adamw(), gpu=False) is None


def test_an_optimizer_without_a_fused_form_is_left_alone():
    assert fix(SINGLE, adamw(name="RMSprop")) is None


def test_the_largest_of_several_counts():
    assert "fused=True for Adam:" in fix(SINGLE, adamw(name="SGD", tensors=2), adamw(name="Adam", tensors=300)).action


def test_the_trainers_own_option_is_named():
    assert 'optim="adamw_torch_fused" for AdamW' in fix(SINGLE, adamw(), of=TRAINER).action
