"""Data that the training makes itself: by stepping an environment, or by generating with the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import dropwhile, pairwise
from typing import NamedTuple

from tuimon.diagnosis.threshold import MIN_SAMPLES, MOST
from tuimon.session.stacks.frames import Function, KnownFrame
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

    @property
    def maker(self) -> str:
        """The part that takes most of it, as the end of a headline."""
        return "runs the model to generate the data" if self.is_by_policy else "steps the environment"


class _Parts(NamedTuple):
    """The functions that make the data of a training thread, by what they do."""

    stepping: frozenset[Function]  # lead to the environment, or to what generates
    acting: frozenset[Function]  # call the model
    loop: frozenset[Function]  # lead to backward and the update
    lines: dict[Function, tuple[int, int]]  # of those that also step the environment: from the first call of either

    def is_between(self, node: Node) -> bool:
        """True if a sample is in lines from the policy to the environment, and in no function beside these."""
        ends = ((frame.line, self.lines.get(frame.code, (0, -1))) for frame in node.frames)
        return any(first <= line <= last for line, (first, last) in ends) and not self.is_beside(node)

    def is_beside(self, node: Node) -> bool:
        """True if a sample is in a function that only the loop calls: it takes from a buffer, or computes returns."""
        making = self.stepping | self.acting
        if node.makes_data or (making - self.loop) & node.functions:
            return False
        return bool(node.functions - making - self.loop)


def _parts(main: Samples) -> _Parts | None:
    """None where no data is made by a rollout, or samples are few."""
    data = main.where(phase="data")
    making = data.where(lambda node: node.makes_data)
    if data.total < MIN_SAMPLES or not making.total:
        return None
    stepping, loop = frozenset(making.through), frozenset(main.where(phase=_UPDATE).through)
    acting = frozenset(filter(None, (_caller_of_model(row.node) for row in data.rows))) - stepping - loop
    return _Parts(stepping, acting, loop, _acting_lines([row.node for row in data.rows]))


def _acting_lines(data: Iterable[Node]) -> dict[Function, tuple[int, int]]:
    """The lines from the policy's call to the environment's step, in functions that have both."""
    calling, stepping = set[KnownFrame](), set[KnownFrame]()
    for node in data:
        if node.maker_depth:
            if not {"collector", "generates"} & node.frames[node.maker_depth].roles:
                stepping.add(node.frames[node.maker_depth - 1])
        elif node.has("module"):
            calling.update(frame for frame in node.before("module")[-1:] if frame.user)
    last = {step.code: max(s.line for s in stepping if s.code == step.code) for step in stepping}
    return {
        function: (min(f.line for f in calling | stepping if f.code == function), line)
        for function, line in last.items()
    }


def rollout_shares(main: Samples) -> Rollout | None:
    """The rollout that makes the data of the training thread; None if there is none, or if samples are few.

    A function that leads to the environment, and not to the update, is part of the rollout with all that it does. So
    is one that calls the model: what it makes of the answer, to draw an action from it, is the policy's. If one
    function does both, its lines from the one to the other are.
    """
    data, parts = main.where(phase="data"), _parts(main)
    if parts is None:
        return None
    counts: Counter[str] = Counter()
    made = 0
    for row in data.rows:
        kind = _kind(row.node) or ("policy" if parts.acting & row.node.functions else "")
        kind = "" if kind == "copy" and parts.is_beside(row.node) else kind
        kind = kind or ("policy" if parts.is_between(row.node) else "")
        counts[kind] += row.count
        made += row.count if kind or (parts.stepping - main.training_path) & row.node.functions else 0
    shares = Rollout(*(counts[kind] / data.total for kind in Rollout._fields))
    return shares if made >= MOST * data.total else None


def rollout_parts(main: Samples) -> tuple[float, float] | None:
    """The shares of a step, 0..1, that the environment and the policy of a rollout take; None without a rollout."""
    rollout = rollout_shares(main)
    if rollout is None:
        return None
    share = main.phases["data"] / main.in_steps.total
    return rollout.environment * share, rollout.policy * share


def _caller_of_model(node: Node) -> Function | None:
    """The user's function that calls the outermost module, by file and name."""
    callers = node.before("module") if node.has("module") else ()
    return next((frame.code for frame in reversed(callers) if frame.user), None)


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
