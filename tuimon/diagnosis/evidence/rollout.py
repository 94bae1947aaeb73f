"""Data that the training makes itself: by stepping an environment, or by generating with the model."""

from __future__ import annotations

import re
from collections import Counter
from itertools import dropwhile, pairwise
from typing import NamedTuple

from tuimon.diagnosis.threshold import MIN_SAMPLES, MOST
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node, is_environment_step

#: Phases that only the loop leads to: the model is run by a policy, too.
_UPDATE = ("backward", "optimizer")
#: Functions, or the user's source, that bring data from one kind of memory or array to another.
_COPIES = re.compile(
    r"\b(?:from_numpy|as_tensor|obs_as_tensor|to_torch)\b|\.(?:to|cpu|cuda|numpy)\(|torch\.(?:tensor|stack)\("
)


class Rollout(NamedTuple):
    """Shares (0..1) of the training thread's samples in the data phase, by what makes the data."""

    environment: float
    policy: float  # the model, and what a library does around it, outside the environment
    copy: float  # to and from tensors, where the environment or the policy is called

    @property
    def is_by_policy(self) -> bool:
        """True if the model takes more of it than the environment: that is the training's own work."""
        return self.policy > self.environment


def rollout_shares(main: Samples) -> Rollout | None:
    """The rollout that makes the data of the training thread; None if there is none, or if samples are few.

    A function that leads to the environment, and not to the update, is part of the rollout with all that it does; its
    own time is the policy's. So is all of one that calls the model: it draws an action from the answer.
    """
    data = main.where(phase="data")
    making = data.where(lambda node: node.makes_data)
    if data.total < MIN_SAMPLES or not making.total:
        return None
    stepping, loop = frozenset(making.through), frozenset(main.where(phase=_UPDATE).through)
    calling = (row.node.before("module") for row in data.rows if row.node.has("module"))
    callers = (next((frame.code for frame in reversed(frames) if frame.user), None) for frames in calling)
    acting = frozenset(filter(None, callers)) - stepping - loop
    own = stepping - main.training_path
    counts: Counter[str] = Counter()
    made = 0
    for row in data.rows:
        kind = _kind(row.node)
        is_own = row.node.frame.code in own and not row.node.makes_data
        kind = kind or ("policy" if is_own or acting & row.node.functions else "")
        counts[kind] += row.count
        if kind in ("environment", "policy") or own & row.node.functions:
            made += row.count
    shares = Rollout(*(counts[kind] / data.total for kind in Rollout._fields))
    return shares if made >= MOST * data.total else None


def rollout_parts(main: Samples) -> tuple[float, float] | None:
    """The shares of a step, 0..1, that the environment and the policy of a rollout take; None without a rollout."""
    rollout = rollout_shares(main)
    if rollout is None:
        return None
    share = main.phases["data"] / main.in_steps.total
    return rollout.environment * share, rollout.policy * share


def _kind(node: Node) -> str:
    if node.has("environment") or any(is_environment_step(*pair) for pair in pairwise(node.frames)):
        return "environment"
    if node.has("module") or node.has("generates"):
        return "policy"
    if _COPIES.search(node.frame.source or node.frame.function):
        return "copy"
    # a library's collector at work around its policy, which calls no function of the user's
    called = [frame.user for frame in dropwhile(lambda frame: "collector" not in frame.roles, node.frames)]
    return "policy" if called and not any(called) else ""
