"""Calls of a library that owns the loop: before the model they make the batch, after the update they may evaluate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import reduce
from itertools import takewhile

from tuimon.library_code import is_handler
from tuimon.session.loop_tree.frame_table import Function, KnownFrame
from tuimon.session.loop_tree.order import MANY, LibraryPath, Lines, is_before, without_returned
from tuimon.session.loop_tree.seen_boundaries import SeenBoundaries
from tuimon.session.loop_tree.stacks import UPDATES, Stack, StackSample


class LibraryOrder:
    """Finds which functions of the user's a library calls before the forward pass, and where it evaluates.

    The user's line is the same for all: ``model.fit(x)``. The library's functions that lead to backward have lines of
    their own, and a stack leaves them at one of these::

        fit
        484    run_epoch(loader)       backward: 484, 501; the forward pass: 484, 497
                   493    x = augment(x)             484, 493: before it
                   497    out = network(x)
                   501    loss.backward()
        486    callbacks.on_batch_end()              486: after it

    The code that one of these functions calls itself makes the batch. A handler of the
    loop's events does not: the library calls it by a function of its own, or it is named as such. In a function that
    runs the model for these, be it the user's (``training_step``) or the library's, what is called above the model
    makes the batch.

    After the last line that leads to backward or to the update, a call that fetches and runs the model evaluates; what
    else the library calls there does not, such as a checkpoint.
    """

    def __init__(self, samples: Sequence[StackSample], seen: SeenBoundaries | None = None) -> None:
        """``seen``: what the hooks, or the first sample, noted of the loop: with all frames of libraries."""
        noted = without_returned(seen.noted) if seen is not None else []
        known = [*samples, *noted]
        self._path = LibraryPath(samples, noted)
        #: True if the optimizer calls the forward pass and backward as a closure.
        self.trains_in_optimizer = self._path.passes_optimizer
        running = [self._path.leave(sample.frames) for sample in samples if sample.phase == "forward"]
        # where it runs first; empty: nowhere; runs below backward evaluate
        runs = (place for place, _ in running if place and not is_before(self._path.lines, place))
        self._model: Lines = min(runs, default=())
        self._model_lines: dict[Function, int] = {}  # of the functions that run it, the first line that does
        for _, inside in (at for at in running if self._model and at.place == self._model):
            for frame in takewhile(_is_outside_torch, inside):
                self._model_lines[frame.code] = min(frame.line, self._model_lines.get(frame.code, frame.line))
        self._last = self._last_place(known, UPDATES)
        self._last_backward = self._last_place(known, {"backward"})
        fetching = {self._path.leave(sample.frames).place for sample in samples if sample.phase == "data"}
        # the places at which it fetches and runs the model after the update, and the user's functions that do there
        self._evaluating = {at.place for at in running if at.place in fetching and is_before(self._last, at.place)}
        self._evaluators = {own for place, inside in running if place in self._evaluating and (own := _called(inside))}

    def is_after_training(self, stack: Stack) -> bool:
        """True if the library comes to a stack after backward and the update."""
        return is_before(self._last, self._path.leave(stack).place)

    def is_after_backward(self, stack: Stack) -> bool:
        """True if the library comes to a stack after backward, such as at the end of a closure that it trains in."""
        return is_before(self._last_backward, self._path.leave(stack).place)

    def is_evaluation(self, sample: StackSample) -> bool:
        """True if a sample fetches or runs the model to evaluate, or is in a function of the user's that does."""
        place, inside = self._path.leave(sample.frames)
        if place not in self._evaluating or sample.phase in UPDATES:
            return False
        return sample.phase != "rest" or _called(inside) in self._evaluators

    def is_forward(self, stack: Stack) -> bool:
        """True if a stack outside every module is in the library's own code where it runs the model, or above backward.

        Examples are a model's method that calls its modules one by one, and the library's arithmetic on the loss.
        """
        place, inside = self._path.leave(stack)
        if not self._model or is_before(place, self._model) or not is_before(place, self._path.lines):
            return False
        return not any(frame.user or frame.line < self._model_lines.get(frame.code, 0) for frame in inside)

    def _last_place(self, samples: Sequence[StackSample], boundaries: Collection[str]) -> Lines:
        """The last place that leads to one of these: a loss with derivatives in it calls backward before.

        One of so many samples at a place is torn: what is at such a place is mostly done for the update.
        """
        times, inside = Counter[Lines](), Counter[Lines]()
        for sample in samples:
            place = self._path.leave(sample.frames).place
            times[place] += sample.count
            inside[place] += sample.count if sample.phase in boundaries else 0
        places = (place for place, n in inside.items() if n and n * MANY > times[place])
        return reduce(lambda last, place: place if is_before(last, place) else last, places, self._path.lines)

    def made_by(self, stack: Stack) -> Function | None:
        """The function of the user's that makes a batch for the library's loop, given a stack in it; else None."""
        place, inside = self._path.leave(stack)
        if place and place == self._model:
            return self._called_above(inside) or self._called_above(_without_library(inside))
        if not inside or not is_before(place, self._model):
            return None
        called = inside[0]
        return called.code if called.user and not is_handler(called.function) else None

    def _called_above(self, stack: Stack) -> Function | None:
        """The function called by the one that runs the model, the user's or the library's, above the line that does."""
        depth = next((i for i, frame in enumerate(stack) if frame.code not in self._model_lines), len(stack))
        if not 0 < depth < len(stack) or not stack[depth].user:
            return None
        caller, called = stack[depth - 1], stack[depth].code
        first = self._model_lines[caller.code]
        if not caller.user and is_handler(called[1]):
            return None
        return called if caller.line < first else None


def _called(inside: Stack) -> Function | None:
    """The user's function that a stack off the path comes to first."""
    return next((frame.code for frame in inside if frame.user), None)


def _without_library(stack: Stack) -> Stack:
    """The stack from the first frame on that is no library's."""
    return stack[next((i for i, frame in enumerate(stack) if "library" not in frame.roles), len(stack)) :]


def _is_outside_torch(frame: KnownFrame) -> bool:
    return frame.user or "library" in frame.roles
