"""Frames by id, and which line of a stack stands for it."""

from __future__ import annotations

from collections.abc import Sequence

from tuimon.code_origin import WITHIN, innermost_work, is_library_file
from tuimon.library_code import (
    is_evaluator,
    is_metric,
    is_rollout_entry,
    makes_data,
    may_be_loss,
    receives,
    steps_environment,
)
from tuimon.records import CountSetting, Frame, Place
from tuimon.session.samples.stack_phase import FrameKind, frame_kind
from tuimon.torch_code import (
    collates,
    is_gradient_call,
    is_torch_optimizer,
    is_worker_loop,
    marked_part,
    may_call_closure,
)

#: How many frames of a log are held; what lies beyond has no name.
_FRAMES_LIMIT = 50_000
#: Most lines that are held of those that set how many threads, or workers, there are; and of those that keep.
_COUNTS_LIMIT, _KEEPING_LIMIT = 16, 4
#: A block of code without gradients: its file, first line and function; of a library's that evaluates the line is 0.
Block = tuple[str, int, str]
#: A function's file and its bare name.
Function = tuple[str, str]
_UNKNOWN = Frame("", 0, "?")


def function_at(stack: Sequence[Frame]) -> str:
    """The function of the innermost frame; a comprehension, or a lambda that it is called with, is its function's."""
    depth = len(stack) - 1
    while depth and stack[depth].function in WITHIN and stack[depth - 1].file == stack[depth].file:
        depth -= 1
    return stack[depth].function


class FrameTable:
    """Frames by id, over all processes of a stream; bounded."""

    def __init__(self) -> None:
        self.counts: dict[CountSetting, list[Place]] = {"threads": [], "workers": []}  # where code sets these numbers
        self.keeping: list[Place] = []  # lines that keep what has a graph, or a figure
        self._frames: dict[int, Frame] = {}
        self._texts: dict[str, dict[int, str]] = {}  # lines of code by file and number, as far as frames brought them
        self._kinds: dict[int, FrameKind] = {}
        self._libraries: set[int] = set()  # frames of packages other than torch
        self._anchors: set[int] = set()  # frames of the user's and of marked parts of torch
        self._makers: set[int] = set()  # frames that make data: collectors, environments, generation
        self._gradient_calls: set[int] = set()  # frames of torch that return gradients
        self._closure_callers: set[int] = set()  # frames of torch's optimizers
        self._blocks: dict[int, Block] = {}  # of frames in code that may evaluate
        self._collating: set[int] = set()  # frames that have a batch made of items
        self._metrics: set[int] = set()  # frames of libraries that compute metrics
        self._losses: set[int] = set()  # frames of metrics that may be the loss
        self._receiving: set[int] = set()  # frames of libraries that wait for a message
        self._steps: set[int] = set()  # frames of a ``step``: whether it is an environment's, its caller shows

    def add_frames(self, first: int, frames: list[Frame]) -> None:
        """Add frames, with ids from ``first`` on."""
        for id_, frame in enumerate(frames, first):
            if len(self._frames) < _FRAMES_LIMIT:
                self._frames[id_] = frame
                self._kinds[id_] = frame_kind(frame)
                if frame.source:
                    self._texts.setdefault(frame.file, {})[frame.line] = frame.source
                for one in frame.counts:
                    self._note_count(one.what, Place(frame.file, one.line, one.function, one.source))
                for line in frame.keeping[: _KEEPING_LIMIT - len(self.keeping)]:
                    self.keeping.append(Place(frame.file, line.line, line.function, line.source))
                self._note_owner(id_, frame)
                self._note_block(id_, frame)
                self._note_work(id_, frame.file, frame.function)
                if collates(frame.file, frame.function, frame.source):
                    self._collating.add(id_)

    def _note_owner(self, id_: int, frame: Frame) -> None:
        """Whose code it is."""
        if frame.user or marked_part(frame.file):
            self._anchors.add(id_)
        elif is_library_file(frame.file) and not is_rollout_entry(frame.file, frame.function):
            self._libraries.add(id_)
            if receives(frame.source):
                self._receiving.add(id_)

    def _note_block(self, id_: int, frame: Frame) -> None:
        if frame.no_grad is not None:
            self._blocks[id_] = frame.file, frame.no_grad[0], frame.function
        elif is_evaluator(frame.file, frame.function):
            self._blocks[id_] = frame.file, 0, frame.function

    def _note_work(self, id_: int, file: str, function: str) -> None:
        """What it works at."""
        if is_gradient_call(file, function):
            self._gradient_calls.add(id_)
        if may_call_closure(file, function):
            self._closure_callers.add(id_)
        if may_be_loss(file):
            self._losses.add(id_)
        elif is_metric(file):
            self._metrics.add(id_)
        if makes_data(file, function):
            self._makers.add(id_)
        elif function == "step":
            self._steps.add(id_)

    def _note_count(self, what: CountSetting, place: Place) -> None:
        places = self.counts[what]
        if len(places) < _COUNTS_LIMIT and place not in places:
            places.append(place)

    def __getitem__(self, id_: int) -> Frame:
        return self._frames.get(id_, _UNKNOWN)

    def lines_near(self, file: str, line: int, around: int) -> list[tuple[int, str]]:
        """The lines of code from ``around`` before to ``around`` after one that samples have brought, numbered."""
        texts = self._texts.get(file, {})
        return [(n, texts[n]) for n in range(line - around, line + around + 1) if n in texts]

    def function(self, id_: int) -> Function:
        """The function that a frame is of."""
        frame = self[id_]
        return frame.file, frame.function

    def kind(self, id_: int) -> FrameKind:
        """Which boundary of the training loop this frame is, if any."""
        return self._kinds.get(id_, "none")

    def block(self, id_: int) -> Block | None:
        """The block of code that may evaluate which a frame is in: without gradients, or of a library and named so."""
        return self._blocks.get(id_)

    def collates(self, id_: int) -> bool:
        """True if a frame has a batch made of items."""
        return id_ in self._collating

    def computes_metric(self, stack: Sequence[int]) -> bool:
        """True if a stack is in a library's metric on which nobody trains."""
        return not self._metrics.isdisjoint(stack) and self._losses.isdisjoint(stack)

    def returns_gradients(self, stack: Sequence[int]) -> bool:
        """True if the backward pass that a stack is in returns gradients, and accumulates none."""
        return next((n in self._gradient_calls for n in stack if self.kind(n) == "backward"), False)

    def is_in_closure(self, stack: Sequence[int]) -> bool:
        """True if one of torch's optimizers calls code that is not torch's there."""
        closure = self._closure(stack)
        return any(self[id_].user or id_ in self._libraries for id_ in closure)

    def calls_user_in_closure(self, stack: Sequence[int]) -> bool:
        """True if that is, or calls, code of the user's."""
        return any(self[id_].user for id_ in self._closure(stack))

    def _closure(self, stack: Sequence[int]) -> Sequence[int]:
        """What one of torch's optimizers calls that is not an optimizer's."""
        if self._closure_callers.isdisjoint(stack):
            return ()
        caller = next((i for i in range(len(stack) - 1, -1, -1) if is_torch_optimizer(self[stack[i]].file)), None)
        return stack[caller + 1 :] if caller is not None and stack[caller] in self._closure_callers else ()

    def is_library(self, id_: int) -> bool:
        """True if this frame is of an installed package other than torch."""
        return id_ in self._libraries

    def awaits_message(self, stack: Sequence[int]) -> bool:
        """True if a stack is in a line of a library that waits for a message, as from other processes."""
        return bool(stack) and stack[-1] in self._receiving

    def outline(self, stack: Sequence[int]) -> Sequence[int]:
        """A stack without the inner frames of libraries, which differ from stack to stack.

        Of ``main fit run_epoch on_batch log`` (``fit`` and ``run_epoch`` a library's) it is ``main fit on_batch log``.
        What makes data stays: it shows that the user's functions that it calls are of a rollout.
        """
        if self._libraries.isdisjoint(stack):
            return stack
        last = next((i for i in range(len(stack) - 1, -1, -1) if stack[i] in self._anchors), -1)
        return [
            number
            for i, number in enumerate(stack)
            if i > last or number not in self._libraries or number in self._makers or (i and self[stack[i - 1]].user)
        ]

    def maker_depth(self, stack: Sequence[int]) -> int | None:
        """Which frame of a stack, if any, is the outermost that steps an environment or generates."""
        if self._makers.isdisjoint(stack) and self._steps.isdisjoint(stack):
            return None
        for depth, number in enumerate(stack):
            if number in self._makers:
                return depth
            if number in self._steps and depth and steps_environment(self[stack[depth - 1]].source):
                return depth
        return None

    def innermost_user(self, stack: Sequence[int]) -> int | None:
        """The innermost frame of the user's code."""
        return next((number for number in reversed(stack) if self[number].user), None)

    def user_place(self, stack: list[int]) -> Place | None:
        """The innermost user line of a stack (ids root first); None where it holds none.

        A forked DataLoader worker carries the trainer's own frames below its loop: they are no work of its own.
        """
        for depth in range(len(stack) - 1, -1, -1):
            frame = self[stack[depth]]
            if frame.user:
                function = function_at([self[number] for number in stack[: depth + 1]])
                return Place(frame.file, frame.line, function, frame.source)
            if is_worker_loop(frame.file, frame.function):
                return None
        return None

    def place(self, stack: list[int]) -> Place | None:
        """The innermost user line; without one the innermost line of a package, torch last, then of anything."""
        own = self.user_place(stack)
        if own is not None or not stack:
            return own
        frame = self[stack[innermost_work([self[id_].file for id_ in stack])]]
        return Place(frame.file, frame.line, frame.function, frame.source)
