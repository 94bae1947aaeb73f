"""Shortens stacks for the log: most library frames are left out, rare stacks merged, the rest only counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest

from tuimon.code_origin import innermost_package, is_agent_file, package_of
from tuimon.library_code import is_callback
from tuimon.proc.ring_facts import RawFrame
from tuimon.records import StackCount
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.stacks.frame_ids import FrameIds, FrameTraits
from tuimon.threshold import REPORTED
from tuimon.torch_code import MODULES, is_fetcher, is_worker_loop, loads_data, may_call_closure

#: How many distinct stacks one window keeps, and how many frames of each: they bound the size of the log.
PER_THREAD = 12
PER_MAIN_THREAD = 24
PER_PROCESS = 52
_DEPTH = 48
#: A stack that ends in the user's code is shortened as late as one elsewhere with this many times the samples: our
#: choice. 1 to 4 were tried on ten programs: a higher number keeps more of the user's lines, and fewer of the frames
#: below them.
_USERS_WEIGHT = 2

RawStack = tuple[RawFrame, ...]  # root first
Function = tuple[str, str]  # file and bare name
#: Functions of a library that give its loop the next batch, also as a generator.
_GIVES_BATCH = ("__next__", "__iter__")
#: The path of a loop that no library owns.
NO_PATH: tuple[Function, ...] = ()


def shorten_stack(
    stack: Sequence[RawFrame], ids: FrameIds, path: Sequence[Function] = NO_PATH, *, whole: bool = False
) -> RawStack:
    """The frames to keep: the user's, marked parts of torch, the innermost of a package, the leaf, few of libraries.

    If a user line imports a package, the outermost frame of the import and the package's own frame are kept, because
    the text of the user's line cannot always be read. An import is in no phase.

    These frames of libraries are kept: those that the user calls or that call the user, those that run the model, and
    those that the DataLoader calls (a dataset's function); also the last one on the ``path`` of functions that lead to
    backward, as the line at which a stack leaves that path shows whether this is before the model. There the object
    that the library iterates over is kept as well.

    With ``whole``, all frames of libraries are kept: for the one stack that shows how they lead to backward.

    A stack that is still deeper than 48 keeps its outermost 12 and innermost 36 frames.
    """
    traits = [ids.traits(frame) for frame in stack]
    last = len(stack) - 1
    package = innermost_package(stack)
    leaves_path = _last_on(path, stack, traits) if path else None
    model = next((i for i, trait in enumerate(traits) if trait.part == MODULES), 0)
    imported = _imported_at(traits)
    module = _module_at(stack, traits, imported)
    kept = tuple(
        frame if i != module else frame._replace(line=0)
        for i, (frame, trait) in enumerate(zip(stack, traits, strict=True))
        if i in (last, package, leaves_path, imported, module)
        or trait.user
        or (whole and trait.library)
        or (i and i - 1 == leaves_path and trait.library and frame.function in _GIVES_BATCH)
        or (not trait.wrapper and (trait.part or (i > 0 and traits[i - 1].user)))  # the latter: what the user called
        or (trait.library and (traits[i + 1].user or i + 1 == model))
        or (trait.library and i > 0 and loads_data(stack[i - 1].file, stack[i - 1].function))
    )
    return kept if len(kept) <= _DEPTH else kept[: _DEPTH // 4] + kept[-(_DEPTH - _DEPTH // 4) :]


def _imported_at(traits: Sequence[FrameTraits]) -> int | None:
    """The index of the outermost frame of an import below the user's innermost frame."""
    found = None
    for i in range(len(traits) - 1, -1, -1):
        if traits[i].user:
            return found
        if traits[i].imports:
            found = i
    return None


def _module_at(stack: Sequence[RawFrame], traits: Sequence[FrameTraits], imported: int | None) -> int | None:
    """The index of the outermost frame of the package that a user's line imports; never one of our own hooks."""
    if not imported or not traits[imported - 1].user:
        return None
    files = ((i, stack[i].file) for i in range(imported, len(stack)))
    return next((i for i, file in files if package_of(file) is not None and not is_agent_file(file)), None)


def _last_on(path: Sequence[Function], stack: Sequence[RawFrame], traits: Sequence[FrameTraits]) -> int | None:
    """The index of the frame at which a stack leaves the path to backward."""
    found, passed = None, 0
    for i, (frame, trait) in enumerate(zip(stack, traits, strict=True)):
        if passed < len(path) and trait.library and frame.code == path[passed]:
            found, passed = i, passed + 1
        elif trait.library:
            break
    return found


def loop_depth(counts: Counter[RawStack], ids: FrameIds) -> int:
    """The number of user functions, from the root down to the loop, that most samples have in common."""
    half = counts.total() / 2
    depth = 0
    passing = counts
    while True:
        by_function: Counter[Function] = Counter()
        for stack, count in passing.items():
            if len(stack) > depth and not (ids.traits(stack[depth]).part or ids.traits(stack[depth]).imports):
                by_function[stack[depth].code] += count
        function, most = next(iter(by_function.most_common(1)), (None, 0))
        if most <= half:
            return depth
        passing = Counter({s: n for s, n in passing.items() if len(s) > depth and s[depth].code == function})
        depth += 1


def phase_depth(stack: RawStack, depth: int, ids: FrameIds, *, calls: bool = True) -> int:
    """The number of outermost frames that show a stack's phase and the calls of the loop's own lines, with ``calls``
    even through a library.

    The first frame of each part of torch and all callbacks show the phase, even if forward and backward run inside
    ``optimizer.step(closure)``: of ``main``, ``step`` (optim), ``closure``, ``_call_impl`` (nn), ``forward`` and
    ``relu`` (nn) the first four do, of ``main step closure loss`` the first three. Below torch's loader, its fetcher
    counts as well, and so does the user's first frame, which makes the data; below an import, the imported package.
    """
    traits = [ids.traits(frame) for frame in stack]
    imported = _imported_at(traits)
    telling = depth + (calls and depth < len(stack) and traits[depth].library)
    if imported is not None:
        telling = _module_at(stack, traits, imported) or imported
    parts, called = set[str](), tuple[str, ...]()  # the latter: whose code, called by torch, is still to come
    for i, (frame, trait) in enumerate(zip(stack, traits, strict=True)):
        code, own = frame.code, "user" if trait.user else "library" if trait.library else "none"
        if trait.part:
            is_new = trait.part not in parts or is_worker_loop(*code) or is_fetcher(frame.file) or is_callback(*code)
            telling = max(telling, i) if is_new else telling
            parts.add(trait.part)
            called = ("user",) if loads_data(*code) else ("user", "library") if may_call_closure(*code) else ()
        elif own in called:
            telling, called = max(telling, i), () if trait.user else ("user",)
    return min(telling + 1, len(stack))


def most_frequent(counts: Counter[RawStack], room: int, ids: FrameIds) -> tuple[list[tuple[RawStack, int]], int]:
    """At most ``room`` stacks, most frequent first, and the number of samples in none of them.

    The rarest lose their innermost frames, one by one while the phase that they show stays the same: ``main forward
    linear`` and ``main forward relu`` may both become ``main forward``. Those that a rule may report are not shortened.
    """
    if len(counts) <= room:
        return counts.most_common(), 0
    kept = Counter(counts)

    def weight(stack: RawStack) -> int:
        return kept[stack] * (_USERS_WEIGHT if ids.traits(stack[-1]).user else 1)

    loop = loop_depth(counts, ids)
    large = REPORTED * counts.total()
    for depth in (loop, max(loop - 1, 0)):  # the latter: there is no room for all calls of the loop's lines
        least = {stack: phase_depth(stack, depth, ids, calls=depth == loop) for stack in kept}
        while len(kept) > room:
            rare = (stack for stack in kept if len(stack) > least[stack] and kept[stack] < large)
            rarest = nsmallest(len(kept) - room, rare, weight)
            if not rarest:
                break
            for stack in rarest:
                least[stack[:-1]] = least[stack]
                kept[stack[:-1]] += kept.pop(stack)
    listed = kept.most_common(room)
    return listed, counts.total() - sum(count for _, count in listed)


def is_parked(counts: Counter[RawStack], ids: FrameIds) -> bool:
    """True if a thread stayed in one frame, outside user code and torch, as threads of pools and progress bars do."""
    if len(counts) != 1:
        return False
    (stack,) = counts
    return not any(trait.user or trait.part for trait in map(ids.traits, stack))


class WindowStacks:
    """The shortened stacks of one process in one window, added thread by thread."""

    def __init__(self, ids: FrameIds, code: ProcessCode, path: Sequence[Function] = NO_PATH) -> None:
        """``path``: the functions of libraries that lead the training to backward."""
        self._ids = ids
        self._code = code
        self._path = path
        self.stacks: list[StackCount] = []
        self.parked: list[tuple[int, str]] = []  # tid and name of threads that are in no stack
        self.folded = 0  # samples that are in no stack

    def add_thread(self, tid: int, thread: str, stacks: Counter[RawStack], matters: bool) -> None:
        """Add one thread's stacks, as they were sampled."""
        short: Counter[RawStack] = Counter()
        path = self._path if matters else NO_PATH
        for stack, count in stacks.items():
            if stack:
                short[shorten_stack(stack, self._ids, path)] += count
        if not short or (not matters and is_parked(short, self._ids)):
            self.parked.append((tid, thread))
            return
        room = min(PER_MAIN_THREAD if matters else PER_THREAD, PER_PROCESS - len(self.stacks))
        if room < 2:
            self.folded += sum(short.values())
            return
        listed, lost = most_frequent(short, room, self._ids)
        self.folded += lost
        for stack, count in listed:
            self.stacks.append(StackCount(tid, thread, self._ids.ids_of(stack, self._code), count))
