"""Which function evaluates, or does side work: told by where samples leave the training's way."""

from __future__ import annotations

from tuimon.diagnosis.evidence.common import HotFunction, hottest_of
from tuimon.records import Frame, Place
from tuimon.session.samples.classify import Sample
from tuimon.session.session import Session

#: Boundaries of training: what a sample inside them passes through is the way of training.
_TRAINS = ("backward", "optimizer")


def evaluation_function(session: Session, pid: int) -> HotFunction | None:
    """The user's function outside the training's way that most samples pass through; None without such samples.

    A sample's function here is the innermost of the user's before torch is entered: a module's own ``forward`` is
    called by training and evaluation alike.
    """
    hotspots = session.hotspots(pid)
    samples = hotspots.samples_of(pid) if hotspots else []
    way = {
        (frame.file, frame.function)
        for sample in samples
        if sample.phase in _TRAINS
        for frame in _before_torch(session, sample)
    }
    placed = []
    for sample in samples:
        stack = _before_torch(session, sample)
        if stack and sample.phase not in _TRAINS and (stack[-1].file, stack[-1].function) not in way:
            placed.append((_place(stack[-1]), sample.count))
    return hottest_of(placed)


def side_function(session: Session, pid: int) -> HotFunction | None:
    """The user's function that most side work is done in, at the line before torch is entered; None without samples.

    A model's own line would name what training calls as well.
    """
    hotspots = session.hotspots(pid)
    side = [sample for sample in (hotspots.samples_of(pid) if hotspots else ()) if sample.phase == "other"]
    stacks = [(_before_torch(session, sample), sample.count) for sample in side]
    return hottest_of((_place(stack[-1]) if stack else None, count) for stack, count in stacks)


def model_share(session: Session, pid: int) -> float:
    """Share (0..1) of the side work's samples that run the model: evaluation that no marker tells from side work."""
    hotspots = session.hotspots(pid)
    side = [sample for sample in (hotspots.samples_of(pid) if hotspots else ()) if sample.phase == "other"]
    total = sum(sample.count for sample in side)
    models = (s.count for s in side if any(session.frames.kind(number) == "module" for number in s.stack))
    return sum(models) / total if total else 0.0


def _before_torch(session: Session, sample: Sample) -> list[Frame]:
    """The user's frames from the root to the first boundary or module."""
    frames: list[Frame] = []
    for number in sample.stack:
        if session.frames.kind(number) not in ("none", "import"):
            break
        if session.frames[number].user:
            frames.append(session.frames[number])
    return frames


def _place(frame: Frame) -> Place:
    return Place(frame.file, frame.line, frame.function, frame.source)
