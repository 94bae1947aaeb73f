"""Data that the training makes itself: by stepping an environment, or by generating with the model."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, StackSample, ThreadSamples
from tuimon.diagnosis.threshold import Threshold
from tuimon.library_code import is_environment, is_generation, steps_environment

ROLLOUT_SHARE = Threshold(
    0.50,
    "share of the wait for data in which an environment is stepped or the policy is run, from which that is the cause",
    "as for collate",
)
#: Functions, or the user's source, that bring data from one kind of memory or array to another.
_COPIES = re.compile(
    r"\b(?:from_numpy|as_tensor|obs_as_tensor|to_torch)\b|\.(?:to|cpu|cuda|numpy)\(|torch\.(?:tensor|stack)\("
)


_Function = tuple[str, str]


class Rollout(NamedTuple):
    """Shares (0..1) of the training thread's samples in the data phase, by what makes the data."""

    environment: float
    policy: float  # the model, outside the environment
    copy: float  # to and from tensors, where the environment or the policy is called

    @property
    def is_by_policy(self) -> bool:
        """Whether the model takes more of it than the environment: that is the training's own work."""
        return self.policy > self.environment

    @property
    def maker(self) -> str:
        """What takes most of it, as the rest of a headline."""
        return "runs the model to generate the data" if self.is_by_policy else "steps the environment"


def rollout_shares(main: ThreadSamples) -> Rollout | None:
    """What makes the data of the training thread, in its data phase; None where no rollout does, or samples are few.

    A function that leads to the environment, and not to the update, is part of the rollout with all that it does. So
    is one that calls the model: what it makes of the answer, to draw an action from it, is the policy's.
    """
    data = main.in_phase("data")
    making = [sample for sample in data.stacks if sample.makes_data]
    if data.total < MIN_SAMPLES or not making:
        return None
    stepping = frozenset[_Function]().union(*(sample.functions for sample in making))
    acting = frozenset(filter(None, map(_caller_of_model, data.stacks))) - stepping - main.training_path
    counts: Counter[str] = Counter()
    made = 0
    for sample in data.stacks:
        kind = _kind(sample) or ("policy" if acting & sample.functions else "")
        is_beside = bool(sample.functions - stepping - acting - main.training_path)  # takes a batch from a buffer, say
        kind = "" if kind == "copy" and is_beside else kind
        counts[kind] += sample.count
        made += sample.count if kind or (stepping - main.training_path) & sample.functions else 0
    shares = Rollout(*(counts[kind] / data.total for kind in Rollout._fields))
    return shares if made >= ROLLOUT_SHARE * data.total else None


def _caller_of_model(sample: StackSample) -> _Function | None:
    """The user's function that calls the outermost module, by file and name."""
    if "module" not in sample.kinds:
        return None
    callers = sample.frames[: sample.kinds.index("module")]
    return next(((frame.file, frame.function) for frame in reversed(callers) if frame.user), None)


def _steps_environment(sample: StackSample) -> bool:
    callers = ["", *(frame.source for frame in sample.frames)]
    return any(
        is_environment(frame.file, frame.function) or (frame.function == "step" and steps_environment(caller))
        for frame, caller in zip(sample.frames, callers, strict=False)
    )


def _kind(sample: StackSample) -> str:
    if _steps_environment(sample):
        return "environment"
    if "module" in sample.kinds or any(is_generation(frame.file, frame.function) for frame in sample.frames):
        return "policy"
    leaf = sample.frames[-1] if sample.frames else None
    return "copy" if leaf is not None and _COPIES.search(leaf.source or leaf.function) else ""
