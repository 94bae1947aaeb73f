"""The work of a process before its first step, and the start of its steps, as samples alone show them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.code_origin import is_agent_file, is_import_system, package_of
from tuimon.records import Frame, Place, StackCount, Stacks
from tuimon.session.loop_tree.activity import Activity, activity_of, awaits_own_process
from tuimon.session.loop_tree.frame_table import FrameTable
from tuimon.session.loop_tree.phases import ENOUGH_SAMPLES
from tuimon.session.loop_tree.stacks import UPDATES, StackSample, place_of
from tuimon.torch_code import is_compiler, is_module_body, is_worker_loop

_IMPORT = re.compile(r"\s*(?:from\s+([\w.]+)|import\s+([\w.]+)(?:\s+as\s+\w+)?\s*(,.*)?)")
COMPILING = "compiling"
AWAITS_PROCESSES = "waiting for its processes"
#: Words for activities that no phase of a loop explains; for all others "setting up".
_WORDS: dict[Activity, str] = {
    "io": "reading or writing",
    "lock": "waiting",
    "ranks": "waiting for other ranks",
    "sleep": "sleeping",
    "transfer": "moving tensors",
}
#: Passes through backward between the beginnings of which one whole step lies.
_WHOLE_STEP = 2
RUNS_MODEL = "running the model"
_PHASES = {
    "data": "preparing data",
    "forward": RUNS_MODEL,
    "backward": "running backward",
    "optimizer": "running the optimizer",
}


class UnmarkedSteps:
    """Which thread makes the steps; they begin with the first window in which one is in backward, or in an update.

    Until then a thread that fetches from a DataLoader and runs a model may evaluate before it trains, or never train.
    So many samples without an update as would hardly miss one show that it goes on without: as with markers, its steps
    are batches then, until a first update shows that they were an evaluation.
    """

    def __init__(self, frames: FrameTable) -> None:
        self._frames = frames
        self.have_begun = False
        self._cycles: int | None = 0  # passes through backward that samples have counted; None: too fast to count
        self._fetching: Counter[str] | None = None  # samples of the main thread by boundary, since its first fetch
        self._fetching_since_s = 0.0

    @property
    def has_whole_step(self) -> bool:
        """True if samples have shown a whole step: what they show before that belongs to the set-up."""
        return self.have_begun if self._cycles is None else self._cycles >= _WHOLE_STEP

    @property
    def forward_since_s(self) -> float | None:
        """Since when it fetches batches and runs a model on them without training; None if that is not known."""
        counts = self._fetching
        if self.have_begun or counts is None or not counts["forward"] or counts.total() < ENOUGH_SAMPLES:
            return None
        return self._fetching_since_s

    def add_window(self, record: Stacks, known: int) -> int | None:
        """Fold a window; the thread that trains in it, the ``known`` one before others; None where none does."""
        tids = {stack.tid for stack in record.stacks if self._trains(stack, known)}
        tid = known if known in tids else None if self.have_begun else min(tids, default=None)
        if tid is not None:
            self.have_begun = True
            if self._cycles is not None:
                self._cycles = None if record.cycles is None else self._cycles + record.cycles
        elif not self.have_begun:
            self._add_batches(record, known)
        return tid

    def _add_batches(self, record: Stacks, known: int) -> None:
        counts: Counter[str] = Counter()
        for stack in record.stacks:
            frames = self._frames.stack(stack.frames) if stack.tid == known else ()
            if frames and not any(is_worker_loop(frame.file, frame.function) for frame in frames):
                counts[StackSample.unplaced(frames, stack.count).phase] += stack.count
        if self._fetching is None and counts["data"]:
            self._fetching, self._fetching_since_s = Counter(), record.t - record.window_s
        if self._fetching is not None:
            self._fetching += counts

    def _trains(self, stack: StackCount, known: int) -> bool:
        sample = StackSample.unplaced(self._frames.stack(stack.frames), stack.count)
        if sample.phase not in UPDATES:
            return False
        # a thread of autograd's own may run the user's code in backward, but is not called by it
        return stack.tid == known or any(frame.user for frame in sample.before("backward", "optimizer"))


class Doing(NamedTuple):
    """The work of a main thread, its start, and its line of the user's code."""

    words: str  # "importing transformers", "preparing data"
    since_s: float
    place: Place | None  # None while it imports


class SetUp:
    """Follows a main thread from window to window.

    Windows of one second that are mostly at these places, and what is known at the end of each::

        train.py:1 import torch      importing torch   since 0
        train.py:1 import torch      importing torch   since 0
        prep.py:40 load              setting up        since 2, load() prep.py:40
        prep.py:41 load              setting up        since 2, load() prep.py:41
    """

    def __init__(self, frames: FrameTable) -> None:
        self._frames = frames
        self.doing: Doing | None = None

    def add_window(self, record: Stacks) -> None:
        """Fold a window of samples of the process."""
        counts: Counter[tuple[str, Place | None]] = Counter()
        for stack in record.stacks:
            if stack.tid == record.pid:
                counts[self._doing(stack.frames)] += stack.count
        by_function: Counter[tuple[str, str, str]] = Counter()
        for (words, place), count in counts.items():
            by_function[_function(words, place)] += count
        if not by_function:
            return
        most = max(by_function, key=by_function.__getitem__)
        words, place = max((key for key in counts if _function(*key) == most), key=counts.__getitem__)
        before = self.doing
        goes_on = before is not None and _function(before.words, before.place) == most
        since_s = before.since_s if before is not None and goes_on else record.t - record.window_s
        self.doing = Doing(words, since_s, place)

    def _doing(self, ids: list[int]) -> tuple[str, Place | None]:
        frames = self._frames.stack(ids)
        imported = imported_by(frames)
        if imported is not None and not imported_for_compiler(frames):
            return f"importing {imported or 'modules'}", None
        activity: Activity = activity_of(frames) if imported is None else "compile"
        if activity == "compile":
            return COMPILING, place_of(frames)
        if awaits_own_process(frames):
            return AWAITS_PROCESSES, place_of(frames)
        phase = StackSample.unplaced(frames, 1).phase
        return _PHASES.get(phase) or _WORDS.get(activity) or "setting up", place_of(frames)


def imported_by(frames: Sequence[Frame]) -> str | None:
    """The module that the outermost import of a stack (root first) imports; "" where it has no name, None without."""
    at = _import_depth(frames)
    if not at:
        return None
    statement = _IMPORT.match(frames[at - 1].source)
    name = (statement[1] or statement[2]) if statement is not None else ""
    if statement is not None and not statement[3] and not name.startswith("."):
        return name
    others = (frame.file for frame in frames[at:] if not is_agent_file(frame.file))
    package = next(filter(None, map(package_of, others)), "")
    return package or (f"{name}{(statement[3] or '').rstrip()}" if statement is not None else "")


def imported_for_compiler(frames: Sequence[Frame]) -> bool:
    """True if code that torch.compile has made, or makes, imports there: compilers are imported at their first use."""
    return any(is_compiler(frame.file) for frame in frames[: _import_depth(frames)])


def _import_depth(frames: Sequence[Frame]) -> int:
    """The depth of the outermost import; 0 without one: the root is the program itself."""
    for depth, frame in enumerate(frames):
        if depth and (is_import_system(frame.file) or (not frame.user and is_module_body(frame.file, frame.function))):
            return depth
    return 0


def _function(words: str, place: Place | None) -> tuple[str, str, str]:
    return (words, place.file, place.function) if place is not None else (words, "", "")
