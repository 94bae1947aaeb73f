"""What a library that owns the loop calls: before the model that makes the batch, after the update it may evaluate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from itertools import takewhile

from tuimon.library_code import handles_event, is_handler, is_iteration, may_add_loss
from tuimon.session.loop_tree.activity import awaits_process
from tuimon.session.loop_tree.frame_table import FrameTable, Function
from tuimon.session.loop_tree.order import (
    UPDATES,
    CountedStack,
    LibraryPath,
    Lines,
    is_before,
    returned_gradients,
)
from tuimon.session.loop_tree.seen_boundaries import SeenBoundaries
from tuimon.session.loop_tree.stack_phase import StackPhase

#: Of so many samples at a place that leads to an update more than one is in it: our choice, as for torn stacks of the
#: user's (``torn.py``). What is at such a place is mostly done for the update.
_MANY = 8


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

    What one of these functions calls itself makes the batch, as does what it iterates over, and, in a loop that fetches
    from no DataLoader, a wait for a message. A handler of the loop's events does not: the library calls it by a
    function of its own, or it is named as such. In a function that runs the model for these, be it the user's
    (``training_step``) or the library's, what is called above the model makes the batch.

    After the last line that leads to backward or to the update, a call that fetches and runs the model evaluates, with
    all that the library calls there, such as a metric, but for handlers.
    """

    def __init__(self, samples: Sequence[CountedStack], frames: FrameTable, seen: SeenBoundaries | None = None) -> None:
        """``seen``: what the hooks, or the first sample, noted of the loop: with all frames of libraries."""
        self._frames = frames
        noted = seen.noted if seen is not None else ()
        known = self._returned_as_forward([*samples, *noted])
        samples, noted = known[: len(samples)], known[len(samples) :]
        self._path = LibraryPath(samples, noted, frames)
        #: Whether the optimizer calls the forward pass and backward as a closure.
        self.trains_in_optimizer = self._path.passes_optimizer
        running = [sample.stack for sample in samples if self._path.depth and sample.boundary == "forward"]
        self._model = self._first(map(self._path.leaves_at, running))
        self._model_lines: dict[Function, int] = {}  # of the functions that run it, the first line that does
        for stack in running:
            self._note_model_lines(stack)
        self._last = self._last_place(known, {"backward", "optimizer"})
        self._last_backward = self._last_place(known, {"backward"})
        self._after_backward = self._only_run_after_backward(samples)
        fetching = (sample.stack for sample in samples if self._path.depth and sample.boundary == "data")
        evaluating = self._after_training(running) & self._after_training(fetching)
        self._evaluating = evaluating if seen is None else seen.completed_evaluating(evaluating)
        self._evaluators = {  # the user's functions that run the model there
            frames.function(inside[0])
            for stack in running
            if self._evaluates(stack) and (inside := self._first_user(stack))
        }
        of_loop = {file for file, _ in self._path.depth}
        #: The library's own files that run it there: of its models, and of what evaluates.
        self._evaluating_files = {
            self._frames[caller].file
            for stack in running
            if self._evaluates(stack) and (caller := self._calls_model(stack)) is not None
        } - of_loop

    def is_after_training(self, stack: Sequence[int]) -> bool:
        """True if the library comes to a stack after backward and the update, and not for the next batch."""
        place = self._path.leaves_at(stack) if self._path.depth else ()
        if not place or not is_before(self._last, place):
            return False
        inside = self._path.inside(stack)
        return not inside or not self._iterates(inside[0])

    def is_after_backward(self, stack: Sequence[int]) -> bool:
        """True if the library comes to a stack after backward, such as at the end of a closure that it trains in."""
        return bool(self._path.depth) and is_before(self._last_backward, self._path.leaves_at(stack))

    def is_run_after_backward(self, stack: Sequence[int]) -> bool:
        """True if the library runs a module there after backward, as for a metric, and trains on none of it."""
        return self._path.leaves_at(stack) in self._after_backward if self._after_backward else False

    def is_evaluation(self, sample: CountedStack) -> bool:
        """True if a sample fetches or runs the model to evaluate, or is in the user's or a library's code for that.

        So does one that takes gradients there, of those that are only returned.
        """
        if not self._evaluates(sample.stack) or sample.boundary == "optimizer":
            return False
        if sample.boundary == "backward":
            return self._frames.returns_gradients(sample.stack)
        if sample.boundary != "rest":
            return True
        inside = self._first_user(sample.stack)
        if inside:
            return self._frames.function(inside[0]) in self._evaluators or self._is_metric(sample.stack)
        return any(self._frames[number].file in self._evaluating_files for number in self._path.inside(sample.stack))

    def _returned_as_forward(self, samples: Sequence[CountedStack]) -> list[CountedStack]:
        """Backward passes that only return gradients are part of the forward pass, or of what evaluates."""
        returned = returned_gradients({each.stack for each in samples if each.boundary in UPDATES}, self._frames)
        return [each._replace(boundary="forward") if each.stack in returned else each for each in samples]

    def _calls_model(self, stack: Sequence[int]) -> int | None:
        """The frame of a library that calls the model off the path; None where it is the user's, or the loop's own."""
        outside = list(takewhile(self._is_outside_torch, self._path.inside(stack)))
        return outside[-1] if outside and not self._frames[outside[-1]].user else None

    def _is_metric(self, stack: Sequence[int]) -> bool:
        """True if the library calls the user's function by a function of its own there, and not to handle an event."""
        inside = self._path.inside(stack)
        own = next(depth for depth, number in enumerate(inside) if self._frames[number].user)
        return own > 0 and not any(handles_event(self._frames[number].function) for number in inside[: own + 1])

    def is_forward(self, stack: Sequence[int]) -> bool:
        """True if a stack outside every module is in the library's own code where it runs the model, or above backward.

        Such as a model's method that calls its modules one by one, and the library's arithmetic on the loss.
        """
        place = self._path.leaves_at(stack) if self._model is not None else ()
        if not place or self._model is None or is_before(place, self._model) or not is_before(place, self._path.lines):
            return False
        return not any(self._frames[n].user or self._is_above_model(n) for n in self._path.inside(stack))

    def _is_above_model(self, number: int) -> bool:
        """True if a line is above the one with which its function runs the model."""
        return self._frames[number].line < self._model_lines.get(self._frames.function(number), 0)

    def _evaluates(self, stack: Sequence[int]) -> bool:
        return bool(self._evaluating) and self._path.leaves_at(stack) in self._evaluating

    def _first_user(self, stack: Sequence[int]) -> Sequence[int]:
        """What a stack off the path holds from the user's first frame on; nothing where it comes to torch before."""
        inside = self._by_user(self._path.inside(stack))
        return inside if inside and self._frames[inside[0]].user else ()

    def _last_place(self, samples: Sequence[CountedStack], boundaries: Collection[StackPhase]) -> Lines:
        """The last place that leads to one of these: a loss with derivatives in it calls backward before.

        One of many samples at a place was read while the stack changed.
        """
        times, inside = Counter[Lines](), Counter[Lines]()
        for sample in samples if self._path.depth else ():
            place = self._path.leaves_at(sample.stack)
            times[place] += sample.times
            inside[place] += sample.times if sample.boundary in boundaries else 0
        places = (place for place, n in inside.items() if n and n * _MANY > times[place])
        return reduce(lambda last, place: place if is_before(last, place) else last, places, self._path.lines)

    def _only_run_after_backward(self, samples: Sequence[CountedStack]) -> set[Lines]:
        """The places after backward in which a module runs, and nothing is fetched or trained."""
        times: dict[StackPhase, Counter[Lines]] = {}
        for sample in samples if self._path.depth else ():
            times.setdefault(sample.boundary, Counter())[self._path.leaves_at(sample.stack)] += sample.times
        running = times.pop("forward", Counter())
        used = {place for boundary in ("data", *UPDATES) for place in times.get(boundary, ())}
        return {
            place
            for place, n in running.items()
            if n >= _MANY and place not in used and is_before(self._last_backward, place)
        }

    def _after_training(self, stacks: Iterable[Sequence[int]]) -> set[Lines]:
        return {place for place in map(self._path.leaves_at, stacks) if place and is_before(self._last, place)}

    def made_by(self, stack: Sequence[int]) -> Function | None:
        """The function of the user's that makes a batch for the library's loop, given a stack in it; else None."""
        place = self._path.leaves_at(stack) if self._model is not None else ()
        if not place or self._model is None:
            return None
        inside = self._path.inside(stack)
        if place == self._model:
            return self._called_above_model(inside)
        if not inside or not is_before(place, self._model):
            return None
        iterates = self._iterates(inside[0])
        called = self._frames[next((n for n in inside if self._frames[n].user), inside[0]) if iterates else inside[0]]
        observes = called.user and is_handler(called.function)
        return (called.file, called.function) if (called.user or iterates) and not observes else None

    def handles_before_model(self, stack: Sequence[int]) -> bool:
        """True if a stack is in a handler of the loop's events that the library calls before it runs the model."""
        return self._is_before_model(stack) and bool(self._handler(stack))

    def handles_before_backward(self, stack: Sequence[int]) -> bool:
        """True if the library calls the handler that a stack is in after the model and above backward.

        One that is named after the loss, or the prediction, may be part of it.
        """
        place = self._path.leaves_at(stack) if self._model is not None else ()
        if self._model is None or not is_before(self._model, place) or not is_before(place, self._path.lines):
            return False
        handler = self._handler(stack)
        return bool(handler) and not any(may_add_loss(self._frames[number].function) for number in handler)

    def _is_before_model(self, stack: Sequence[int]) -> bool:
        place = self._path.leaves_at(stack) if self._model is not None else ()
        return self._model is not None and is_before(place, self._model)

    def _handler(self, stack: Sequence[int]) -> Sequence[int]:
        """What calls the user's handler of an event where a stack leaves the path, and it; nothing without one."""
        inside = self._path.inside(stack)
        own = next((depth for depth, number in enumerate(inside) if self._frames[number].user), -1)
        called = inside[: own + 1]
        return called if any(handles_event(self._frames[number].function) for number in called) else ()

    def awaits_batch(self, stack: Sequence[int]) -> bool:
        """True if the library waits there for a message that brings the batch, and not in what handles an event."""
        if not self._is_before_model(stack):
            return False
        inside = self._path.inside(stack)
        if any(self._frames[n].user or handles_event(self._frames[n].function) for n in inside):
            return False
        return self._frames.awaits_message(stack) or awaits_process([self._frames[number] for number in stack])

    def _iterates(self, number: int) -> bool:
        return self._frames.is_library(number) and is_iteration(self._frames[number].function)

    def _by_user(self, stack: Sequence[int]) -> Sequence[int]:
        """The stack from the first frame on that is no library's."""
        return stack[next((i for i, n in enumerate(stack) if not self._frames.is_library(n)), len(stack)) :]

    def _note_model_lines(self, stack: Sequence[int]) -> None:
        if self._path.leaves_at(stack) != self._model:
            return
        for number in takewhile(self._is_outside_torch, self._path.inside(stack)):
            function, line = self._frames.function(number), self._frames[number].line
            self._model_lines[function] = min(line, self._model_lines.get(function, line))

    def _is_outside_torch(self, number: int) -> bool:
        return self._frames[number].user or self._frames.is_library(number)

    def _called_above_model(self, inside: Sequence[int]) -> Function | None:
        """What a function that runs the model, the user's or the library's, calls above the line that does."""
        return self._called_above(inside) or self._called_above(self._by_user(inside))

    def _called_above(self, stack: Sequence[int]) -> Function | None:
        depth = next((i for i, n in enumerate(stack) if self._frames.function(n) not in self._model_lines), len(stack))
        if not 0 < depth < len(stack) or not self._frames[stack[depth]].user:
            return None
        caller, called = self._frames[stack[depth - 1]], self._frames.function(stack[depth])
        first = self._model_lines[self._frames.function(stack[depth - 1])]
        if not caller.user and is_handler(called[1]):
            return None
        if caller.line == first:
            from tuimon.session.loop_tree.call_order import is_made_for_model

            return called if is_made_for_model(caller.source, called[1]) else None
        return called if caller.line < first else None

    def _first(self, places: Iterable[Lines]) -> Lines | None:
        """Where the model runs first; runs below backward evaluate, and stacks that lack frames do not show where."""
        known = [place for place in places if place and not is_before(self._path.lines, place)]
        return min((place for place in known if not self._path.is_cut_short(place)), default=min(known, default=None))
