"""Samples that were read while the stack changed: an update below a line that calls none."""

from __future__ import annotations

import pytest

from tests.session.stacks.classified import by_ids
from tuimon.records import Frame
from tuimon.session.stacks.trie import Trie

TORCH = "/v/lib/python3.11/site-packages/torch"
FRAMES = [
    Frame("train.py", 44, "main", "loss = model(x)", True),
    Frame(f"{TORCH}/nn/modules/module.py", 2, "_call_impl"),
    Frame("train.py", 45, "main", "loss.backward()", True),
    Frame(f"{TORCH}/_tensor.py", 3, "backward"),
    Frame("train.py", 46, "main", "optimizer.step()", True),
    Frame(f"{TORCH}/optim/adam.py", 4, "step"),
    Frame("train.py", 48, "main", "log(loss)", True),
    Frame("train.py", 9, "log", "pairs += 1", True),
]
TRAINING = {(0, 1): 20, (2, 3): 20, (4, 5): 5}
LOG, TORN = (6, 7), (6, 7, 5)


def test_the_only_sample_of_an_update_is_none_that_is_torn() -> None:
    table = Trie()
    table.add_frames(0, FRAMES)
    samples = by_ids({(0, 1): 20, (2, 3): 20, LOG: 20, (4, 5): 1}, table, has_loader=True)
    assert [sample.phase for sample in samples] == ["forward", "backward", "other", "optimizer"]


@pytest.mark.parametrize("torn", [1, 2])
def test_a_backward_below_a_line_that_steps_an_environment_in_nearly_all_other_samples_is_torn(torn: int) -> None:
    library = "/v/lib/python3.11/site-packages/stable_baselines3"
    table = Trie()
    table.add_frames(
        0,
        [
            *FRAMES[:4],
            Frame("train.py", 50, "main", "agent.learn(1000)", True),
            Frame(f"{library}/dqn/dqn.py", 5, "train"),
            Frame(f"{library}/common/off_policy_algorithm.py", 6, "collect_rollouts"),
            Frame(f"{library}/common/monitor.py", 7, "step"),
            Frame("arena.py", 20, "scan", "gap = offset @ offset", True),
        ],
    )
    stacks = {(4, 6, 7, 8): 20, (4, 5, 3): 20, (4, 5, 1): 20, (4, 6, 3): torn}
    samples = by_ids(stacks, table)
    assert samples[0].phase == "data"
