"""Rollouts of a training that a library runs in an optimizer's closure."""

from __future__ import annotations

from tests.session.stacks.classified import by_ids
from tuimon.records import Frame
from tuimon.session.stacks.samples import Sample
from tuimon.session.stacks.trie import Trie

SITE = "/v/lib/python3.11/site-packages"
TRAINER = f"{SITE}/nice/trainer.py"
FRAMES = {
    "main": Frame("train.py", 37, "main", "trainer.fit(model)", True),
    "fit": Frame(TRAINER, 258, "fit"),
    "update": Frame(f"{SITE}/torch/optim/adam.py", 227, "step"),
    "closure:loss": Frame(TRAINER, 131, "closure"),
    "closure:backward": Frame(TRAINER, 141, "closure"),
    "backward": Frame(f"{SITE}/torch/_tensor.py", 3, "backward"),
    "training_step": Frame("train.py", 20, "training_step", "return self.shared_step(batch)", True),
    "play": Frame("train.py", 23, "shared_step", "played = self.play(self.policy)", True),
    "loss": Frame("train.py", 25, "shared_step", "loss = cost(self.policy(played))", True),
    "before": Frame("train.py", 11, "fill_buffer", "play(env)", True),
    "reset": Frame("train.py", 22, "shared_step", "state = env.reset()", True),
    "act": Frame("train.py", 30, "play", "action = policy(state)", True),
    "env.step": Frame("train.py", 31, "play", "state, reward, *_ = env.step(action)", True),
    "module": Frame(f"{SITE}/torch/nn/modules/module.py", 2, "_call_impl"),
    "decode": Frame("policy.py", 9, "forward", "state = env.step(action)", True),
    "environment": Frame(f"{SITE}/nice/envs/tsp.py", 9, "step"),
}
IDS = {name: number for number, name in enumerate(FRAMES)}
LOSS = "main fit update closure:loss training_step "
TRAINING = {LOSS + "loss module": 30, "main fit update closure:backward backward": 40}


def classified(stacks: dict[str, int]) -> dict[str, Sample]:
    """Each stack (frames by name, root first -> how often it was seen) among those of training."""
    table, stacks = Trie(), TRAINING | stacks
    table.add_frames(0, list(FRAMES.values()))
    numbered = {tuple(IDS[name] for name in stack.split()): times for stack, times in stacks.items()}
    samples = {tuple(sample.node.ids): sample for sample in by_ids(numbered, table, has_loader=True)}
    return {stack.removeprefix(LOSS): samples[numbers] for stack, numbers in zip(stacks, numbered, strict=True)}


def phases_of(stacks: dict[str, int]) -> dict[str, str]:
    """The phases of these."""
    return {stack: sample.phase for stack, sample in classified(stacks).items()}


def test_what_a_model_steps_in_its_forward_pass_is_no_rollout() -> None:
    found = phases_of({LOSS + "loss module decode environment": 20})
    assert found["loss module"] == found["loss module decode environment"] == "forward"


def test_only_what_markers_count_as_forward_is_moved_out_of_it() -> None:
    """They show a rollout in the closure that a batch was fetched for as forward, one before the fetch as side work."""
    outside = "main before env.step environment"
    found = classified({LOSS + "play env.step environment": 20, outside: 20})
    within, before = found["play env.step environment"], found[outside]
    assert (within.phase, within.excluded, within.moved_from) == ("data", True, "forward")
    assert (before.phase, before.excluded, before.moved_from) == ("data", False, None)
