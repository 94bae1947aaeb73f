"""The parameters of a step, and fixes as edits of it: a fix is a text and a pure function from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.finding import Change, What
from tuimon.diagnosis.threshold import Threshold

HALF = Threshold(
    0.5,
    "part of the time of a line, or of work beside the training, that a fix removes at least",
    "our choice: as if it took half; a line that is made cheaper or called less often seldom costs nothing",
)
TAKES_ERROR = Threshold(
    0.15,
    "how far off a part of the time may be that a change was measured to take of other trainings",
    "measured in bench/fused_update.py: 0.10 to 0.47 for 0.30, 0.13 to 0.41 for 0.35; and in bench/cpu_settings.py",
)


class ModelStep(Struct, frozen=True):
    """One step of a loop; times in ms, or in any other unit where no time is known.

    Work on a core takes longer if more threads want to run than there are cores; waiting (for a disk, the network, a
    device) does not. Without workers the training thread makes its batches itself, and nothing is handed over.
    """

    own_ms: float  # of the training thread, without its fetches
    own_running: float = 0.0  # share of ``own_ms`` on a core
    own_threads: float = 1.0  # cores that it uses while on a core
    fetches: int = 1  # batches per step
    hand_over_ms: float = 0.0  # what taking over a ready batch from a worker costs the training thread
    starts_ms: float = 0.0  # per step, for starting and ending the workers of an epoch; meanwhile nobody makes batches
    workers: int = 0
    batch_ms: float = 0.0  # making one batch
    batch_running: float = 0.0  # share of ``batch_ms`` on a core
    cores: float = 1.0
    drawing_ms: float = 0.0  # drawing the indices of a batch, in the training thread whoever makes the batch
    held_ms: float = 0.0  # waiting for the next batch in order while workers that have made later ones idle
    evaluation_ms: float = 0.0  # the step's part of the evaluation between steps; meanwhile nobody makes batches


#: The least effect of a fix on what it concerns: it removes half of it, or all, or slows down the rest.
Least = Literal["half", "all", "slower"]


class Edit(NamedTuple):
    """A kind of change; ``of`` takes a step and the part (0..1) of what it changes that is left, or a new number."""

    of: Callable[[ModelStep, float], ModelStep]
    least: Least = "half"


def _items(step: ModelStep, left: float) -> ModelStep:
    drawing_ms = step.drawing_ms if step.workers else step.drawing_ms * left
    return replace(step, batch_ms=step.batch_ms * left, drawing_ms=drawing_ms, held_ms=step.held_ms * left)


def _fetch(step: ModelStep, left: float) -> ModelStep:
    if not step.workers:
        return _items(step, left)
    return replace(step, hand_over_ms=step.hand_over_ms * left, drawing_ms=step.drawing_ms * left)


def _workers(step: ModelStep, number: float) -> ModelStep:
    beside = {} if number else {"starts_ms": 0.0, "held_ms": 0.0}
    return replace(step, workers=int(number), **beside)


def _own(step: ModelStep, left: float) -> ModelStep:
    return replace(step, own_ms=step.own_ms * left)


def _thread(step: ModelStep, left: float) -> ModelStep:
    """The step with this part of the training thread's work left."""
    fetched = _fetch(step, left)
    return replace(
        fetched,
        own_ms=step.own_ms * left,
        hand_over_ms=step.hand_over_ms * left,
        evaluation_ms=step.evaluation_ms * left,
    )


EDITS: dict[What, Edit] = {
    "items": Edit(_items),
    "fetch": Edit(_fetch),
    "workers": Edit(_workers, "slower"),
    "starts": Edit(lambda step, left: replace(step, starts_ms=step.starts_ms * left), "slower"),
    "in_order": Edit(lambda step, _: replace(step, held_ms=0.0), "slower"),
    "side_work": Edit(_own),
    "evaluation": Edit(lambda step, left: replace(step, evaluation_ms=step.evaluation_ms * left)),
    "optimizer": Edit(_own),
    "collections": Edit(_thread, "all"),
    "gil": Edit(_thread, "all"),  # work that moves to another process is gone from this one
    "communication": Edit(_own),
    "model": Edit(_own),
    "compiling": Edit(_own),
    "cost": Edit(_own, "all"),
}


def changed(step: ModelStep, change: Change, part: float = 1.0) -> ModelStep:
    """The step with a change; ``part``: the share of what it changes to which it applies."""
    return EDITS[change.what].of(step, 1.0 - min(1.0, max(0.0, part) * (1.0 - change.to)))
