"""A stack, how often a thread was sampled in it, and what its frames show."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from tuimon.code_origin import WITHIN, innermost_work
from tuimon.library_code import steps_environment
from tuimon.records import Frame, Place
from tuimon.session.loop_tree.activity import Activity, activity_of, awaits_process
from tuimon.session.loop_tree.frame_table import Function, KnownFrame
from tuimon.session.loop_tree.range_join import RANGE
from tuimon.session.loop_tree.roles import FrameKind, Role, StackPhase, stack_phase
from tuimon.torch_code import compiles, is_module_call, is_worker_loop

#: Frames, root first.
Stack = tuple[KnownFrame, ...]
#: The part of samples that counts as all of them: our choice. In quick calls 0.11 were read while the stack changed.
NEARLY_ALL = 0.8
#: The phases in which gradients are made or used.
UPDATES: frozenset[StackPhase] = frozenset({"backward", "optimizer"})


class StackSample(Struct, frozen=True, dict=True):
    """One stack of a thread, how often it was sampled and in which phase; what it shows is looked up on first use.

    Before its phase is known, that is the innermost boundary that it is in: a ``StackPhase``.
    """

    frames: Stack
    count: int
    phase: str
    excluded: bool = False  # from dividing what markers leave open: they measure its phase
    unsure: bool = False  # "forward" may be "data", or "other" either of them: nothing shows yet which
    moved_from: str | None = None  # the phase that markers count it in, where they cannot separate that from its own
    ranges: tuple[str, ...] = ()  # paths of the user's ranges that it lies in, outer ones first
    is_lost: bool = False  # it has lost all code of the user's, and no whole stack shows which: no share counts it

    @classmethod
    def unplaced(cls, frames: Stack, count: int) -> StackSample:
        """A sample of which only its boundary is known."""
        return cls(frames, count, stack_phase([frame.kind for frame in frames]))

    def at(self, phase: str, frames: Stack | None = None) -> StackSample:
        """The same in another phase, with these frames."""
        return StackSample(self.frames if frames is None else frames, self.count, phase)

    def lies_in(self, part: str | None) -> bool:
        """True if it is in a phase, or in a user range (RANGE and its path); always for None."""
        if part is None:
            return True
        return part.removeprefix(RANGE) in self.ranges if part.startswith(RANGE) else self.phase == part

    @property
    def ids(self) -> list[int]:
        """Ids of its frames."""
        return [frame.id for frame in self.frames]

    @cached_property
    def kinds(self) -> list[FrameKind]:
        """The kind of each frame, which shows the phase."""
        return [frame.kind for frame in self.frames]

    def has(self, role: Role) -> bool:
        """True if one of its frames has this role."""
        return any(role in frame.roles for frame in self.frames)

    @cached_property
    def compiles(self) -> bool:
        """True if torch.compile compiles in it; to run compiled code does not count."""
        return any(compiles(frame.file, frame.function) for frame in self.frames)

    def passes(self, kind: FrameKind) -> bool:
        """True if one of its frames is of this kind."""
        return kind in self.kinds

    @property
    def imports(self) -> bool:
        """True if it imports a module; the root is the program itself."""
        return "import" in self.kinds[1:]

    def before(self, *kinds: FrameKind) -> Stack:
        """The frames from the root to the first of these kinds."""
        return self.frames[: next((depth for depth, kind in enumerate(self.kinds) if kind in kinds), len(self.frames))]

    @cached_property
    def outside_torch(self) -> Stack:
        """The frames from the root to the first boundary or module."""
        return self.before("fetch", "backward", "optimizer", "module")

    @cached_property
    def user_path(self) -> Stack:
        """The user's frames of them; side work may be what an optimizer's step calls."""
        optimizer: tuple[FrameKind, ...] = () if self.phase == "other" else ("optimizer",)
        return tuple(frame for frame in self.before("fetch", "backward", "module", *optimizer) if frame.user)

    @cached_property
    def outline(self) -> Stack:
        """The frames without the inner ones of libraries, which differ from stack to stack.

        For ``main fit run_epoch on_batch log`` (``fit`` and ``run_epoch`` a library's) it is ``main fit on_batch log``.
        A frame that makes data stays: it shows that the user's functions that it calls are of a rollout.
        """
        frames = self.frames
        if not self.has("library"):
            return frames
        last = next((i for i in range(len(frames) - 1, -1, -1) if "anchor" in frames[i].roles), -1)
        return tuple(
            frame
            for i, frame in enumerate(frames)
            if i > last or "library" not in frame.roles or "makes_data" in frame.roles or (i and frames[i - 1].user)
        )

    @property
    def outlined(self) -> StackSample:
        """The same with its outline for its frames."""
        return self if self.outline is self.frames else self.at(self.phase, self.outline)

    # ---- whose code it is in

    @cached_property
    def user_line(self) -> KnownFrame | None:
        """The innermost frame of the user's code."""
        return next((frame for frame in reversed(self.frames) if frame.user), None)

    @cached_property
    def place(self) -> Place | None:
        """The innermost user line; None where a forked DataLoader worker has none of its own."""
        return user_place(self.frames)

    @cached_property
    def functions(self) -> frozenset[Function]:
        """The user's functions that it passes through, by file and name."""
        return frozenset(frame.code for frame in self.frames if frame.user)

    def calls(self, function_part: str) -> bool:
        """True if a function whose name contains this is in the stack."""
        return any(function_part in frame.function for frame in self.frames)

    @cached_property
    def module_calls(self) -> list[Stack]:
        """The frames up to each call of a module in it that goes on to some other frame."""
        calls = (i for i, frame in enumerate(self.frames[:-1]) if is_module_call(frame.file, frame.function))
        return [self.frames[: i + 1] for i in calls]

    # ---- what it does

    @cached_property
    def activity(self) -> Activity:
        """The activity of the thread."""
        return activity_of(self.frames)

    @cached_property
    def returns_gradients(self) -> bool:
        """True if the backward pass that it is in returns gradients, and accumulates none."""
        return next(("returns_gradients" in frame.roles for frame in self.frames if frame.kind == "backward"), False)

    @cached_property
    def closure(self) -> Stack:
        """The frames that one of torch's optimizers calls, the innermost of its own before them."""
        own = next((i for i in range(len(self.frames) - 1, -1, -1) if "optimizer_code" in self.frames[i].roles), None)
        return self.frames[own + 1 :] if own is not None and "calls_closure" in self.frames[own].roles else ()

    @property
    def is_in_closure(self) -> bool:
        """True if one of torch's optimizers calls code that is not torch's there."""
        return any(frame.user or "library" in frame.roles for frame in self.closure)

    @cached_property
    def maker_depth(self) -> int | None:
        """Which frame, if any, is the outermost that steps an environment or generates."""
        for depth, frame in enumerate(self.frames):
            if "makes_data" in frame.roles or (depth and is_environment_step(self.frames[depth - 1], frame)):
                return depth
        return None

    @property
    def makes_data(self) -> bool:
        """True if an environment is stepped in it, or a model generates."""
        return self.maker_depth is not None

    @cached_property
    def computes_metric(self) -> bool:
        """True if it is in a library's metric on which nobody trains."""
        return self.has("metric") and not self.has("may_be_loss")

    @property
    def awaits_message(self) -> bool:
        """True if it waits for a message of another process, and not for one of a loader's worker."""
        return not self.passes("fetch") and awaits_process(self.frames)


def is_environment_step(caller: Frame, frame: Frame) -> bool:
    """True if a ``step`` of the user's is an environment's, as the line that calls it shows."""
    return frame.function == "step" and steps_environment(caller.source)


def without_imports(samples: Sequence[StackSample]) -> list[StackSample]:
    """Those that are no part of an import: what a step imports, it imports once.

    If the loop itself runs in a module while that is imported, an import shows nothing, and all are left.
    """
    if any(sample.phase == "backward" and sample.imports for sample in samples):
        return list(samples)
    return [sample for sample in samples if not sample.imports]


def user_place(frames: Sequence[Frame]) -> Place | None:
    """The innermost user line of a stack (root first); None where it holds none.

    A forked DataLoader worker carries the trainer's own frames below its loop: they are no work of its own.
    """
    for depth in range(len(frames) - 1, -1, -1):
        frame = frames[depth]
        if frame.user:
            return Place(frame.file, frame.line, function_at(frames[: depth + 1]), frame.source)
        if is_worker_loop(frame.file, frame.function):
            return None
    return None


def place_of(frames: Sequence[Frame]) -> Place | None:
    """The innermost user line; without one the innermost line of a package, torch last, then of anything."""
    own = user_place(frames)
    if own is not None or not frames:
        return own
    frame = frames[innermost_work([frame.file for frame in frames])]
    return Place(frame.file, frame.line, frame.function, frame.source)


def function_at(stack: Sequence[Frame]) -> str:
    """The function of the innermost frame; a comprehension, or a lambda that it is called with, is its function's."""
    depth = len(stack) - 1
    while depth and stack[depth].function in WITHIN and stack[depth - 1].file == stack[depth].file:
        depth -= 1
    return stack[depth].function
