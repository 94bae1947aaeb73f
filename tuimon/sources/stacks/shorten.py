"""Shortens stacks for the log: most library frames are left out, rare stacks merged, the rest only counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tuimon.code_origin import innermost_package, is_agent_file, package_of
from tuimon.library_code import is_iteration
from tuimon.proc.target_files import TargetFiles
from tuimon.records import StackCount
from tuimon.sources.stacks.frame_ids import FrameIds, FrameTraits, RawFrame
from tuimon.torch_code import MODULES, is_fetcher, is_worker_loop, loads_data, may_call_closure

#: How many distinct stacks one window keeps, and how many frames of each: they bound the size of the log.
PER_THREAD = 12
PER_MAIN_THREAD = 24
PER_PROCESS = 52
_DEPTH = 48
#: 1 in this many of the places left goes to the most frequent stacks, before the rest is merged further.
_KEPT = 3

Stack = tuple[RawFrame, ...]  # root first
Function = tuple[str, str]  # file and bare name
#: The path of a loop that no library owns.
NO_PATH: tuple[Function, ...] = ()


def shorten(
    stack: Sequence[RawFrame], ids: FrameIds, path: Sequence[Function] = NO_PATH, *, whole: bool = False
) -> Stack:
    """The frames to keep: the user's, marked parts of torch, the innermost of a package, the leaf, few of libraries.

    An import by a line of the user's keeps its outermost frame, which is in no phase wherever it is, and the outermost
    of the imported package: the line's text cannot always be read.

    Libraries keep the frames that the user calls and that call the user, the one that runs the model, and the last on
    the ``path``: its functions lead to backward one after another, and the line at which a stack leaves them shows
    if that is before the model; there also the object that the library iterates over. The DataLoader's callees among
    them are kept too: a data set's function.

    With ``whole``, all frames of libraries are kept: for the one stack that shows how they lead to backward.

    A stack that is still deeper than 48 keeps its outermost 12 and innermost 36 frames.
    """
    traits = [ids.traits(frame) for frame in stack]
    last = len(stack) - 1
    package = innermost_package([frame.file for frame in stack])
    leaves_path = _last_on(path, stack, traits) if path else None
    model = next((i for i, trait in enumerate(traits) if trait.part == MODULES), 0)
    imported = _imported_at(traits)
    module = _module_at(stack, traits, imported)
    kept = tuple(
        frame
        for i, (frame, trait) in enumerate(zip(stack, traits, strict=True))
        if i in (last, package, leaves_path, imported, module)
        or trait.user
        or (whole and trait.library)
        or (i and i - 1 == leaves_path and trait.library and is_iteration(frame.function))
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


def _closure_at(stack: Stack, traits: Sequence[FrameTraits]) -> int | None:
    """The index of the outermost frame of an optimizer's closure, if no marked part of torch runs inside of it."""
    last = next((i for i in range(len(stack) - 1, -1, -1) if traits[i].part), len(stack))
    return last + 1 if last + 1 < len(stack) and may_call_closure(*_function(stack[last])) else None


def _last_on(path: Sequence[Function], stack: Sequence[RawFrame], traits: Sequence[FrameTraits]) -> int | None:
    """The index of the last frame before a library's frame that is not the next on the path."""
    found, passed = None, 0
    for i, (frame, trait) in enumerate(zip(stack, traits, strict=True)):
        if passed < len(path) and trait.library and _function(frame) == path[passed]:
            found, passed = i, passed + 1
        elif trait.library:
            break
    return found


def without_callees(stack: Stack, ids: FrameIds) -> Stack:
    """A stack down to what the user's innermost function calls, where no marked part of torch runs in there.

    ``main <fetch> __getitem__ dumps iterencode`` -> ``main <fetch> __getitem__ dumps``
    """
    traits = [ids.traits(frame) for frame in stack]
    innermost = next((i for i in range(len(stack) - 1, -1, -1) if traits[i].user or traits[i].part), len(stack))
    return stack[: innermost + 2] if innermost < len(stack) and traits[innermost].user else stack


def coarse_stack(stack: Stack, ids: FrameIds, path: Sequence[Function] = NO_PATH) -> Stack:
    """A stack without its detail: the user's frames and the path's up to torch, then one for each part of torch.

    The library's frame that calls the user where a stack leaves the path is left: it may handle an event.
    Below torch's loader its fetcher is left as well, and the user's first frame, which makes the data.
    They show its phase, also where forward and backward run inside ``optimizer.step(closure)``: of ``main``, ``step``
    (optim), ``closure``, ``_call_impl`` (nn), ``forward`` and ``relu`` (nn), ``main step _call_impl`` are left. If
    the closure runs no more of torch, it and its callers are: ``main step closure``.
    """
    out: list[RawFrame] = []
    part = ""
    loads = False
    traits = [ids.traits(frame) for frame in stack]
    imported = _imported_at(traits)
    module = _module_at(stack, traits, imported)
    closure = _closure_at(stack, traits)
    for i, (frame, trait) in enumerate(zip(stack, traits, strict=True)):
        if i == module:
            out.append(frame._replace(line=0))  # of any of its lines
        elif i == imported or (closure is not None and i in (closure - 1, closure)):
            out.append(frame)
            part = trait.part or part
        elif trait.part and (trait.part != part or is_worker_loop(*_function(frame)) or is_fetcher(frame.file)):
            out.append(frame)
            part = trait.part
            loads = loads_data(*_function(frame))
        elif loads and trait.user:
            out.append(frame)
            loads = False
        elif not part and (trait.user or _function(frame) in path or _calls_user_off(path, i, stack, traits)):
            out.append(frame)
    return tuple(out) or stack[:1]


def _calls_user_off(path: Sequence[Function], i: int, stack: Stack, traits: Sequence[FrameTraits]) -> bool:
    """True if a frame of a library's, called by the last of the path, calls the user's code."""
    return 0 < i < len(stack) - 1 and traits[i].library and traits[i + 1].user and _function(stack[i - 1]) in path


def loop_depth(counts: Counter[Stack], ids: FrameIds) -> int:
    """How many of the user's functions most samples have in common, counted from the root: down to the loop."""
    half = counts.total() / 2
    depth = 0
    passing = counts
    while True:
        by_function: Counter[tuple[str, str]] = Counter()
        for stack, count in passing.items():
            if len(stack) > depth and not ids.traits(stack[depth]).part:
                by_function[_function(stack[depth])] += count
        function, most = next(iter(by_function.most_common(1)), (None, 0))
        if most <= half:
            return depth
        passing = Counter({s: n for s, n in passing.items() if len(s) > depth and _function(s[depth]) == function})
        depth += 1


def outline_stack(stack: Stack, depth: int, lines: dict[Function, int], ids: FrameIds) -> Stack:
    """A coarse stack without the user's frames further down than what the loop's own lines call, be it by a library.

    The line within a function of torch does not matter: ``lines`` holds the one that stands for all.
    """
    out, parts = [], set()
    traits = [ids.traits(frame) for frame in stack]
    module = _module_at(stack, traits, _imported_at(traits))
    closure = _closure_at(stack, traits)
    for i, frame in enumerate(stack):
        part = traits[i].part
        if i == module or (closure is not None and i in (closure - 1, closure)):
            out.append(frame)
        elif part and (part not in parts or is_worker_loop(frame.file, frame.function)):
            parts.add(part)
            out.append(frame._replace(line=lines.setdefault(_function(frame), frame.line)))
        elif not part and (i <= depth or (i == depth + 1 and traits[depth].library)):
            out.append(frame)
    return tuple(out)


def most_frequent(
    counts: Counter[Stack], room: int, ids: FrameIds, path: Sequence[Function] = NO_PATH
) -> tuple[list[tuple[Stack, int]], int]:
    """At most ``room`` stacks, most frequent first, and how many samples are in none of them.

    Rare stacks are merged step by step: without what the user's lines call, then into coarse ones, then into outlines,
    which still show the phase.
    """
    if len(counts) <= room:
        return counts.most_common(), 0
    depth = loop_depth(counts, ids)
    lines: dict[Function, int] = {}
    kept, rest = Counter[Stack](), counts
    for shortened in (
        lambda stack: without_callees(stack, ids),
        lambda stack: coarse_stack(stack, ids, path),
        lambda stack: outline_stack(stack, depth, lines, ids),
    ):
        common, rest = _split(rest, (room - len(kept)) // _KEPT)
        kept, rest = _merge(kept + common, rest, shortened)
        if len(kept) + len(rest) <= room:
            break
    listed, lost = _split(rest, room - len(kept))
    return (kept + listed).most_common(), lost.total()


def _split(counts: Counter[Stack], number: int) -> tuple[Counter[Stack], Counter[Stack]]:
    ordered = counts.most_common()
    return Counter(dict(ordered[:number])), Counter(dict(ordered[number:]))


def _merge(
    kept: Counter[Stack], rest: Counter[Stack], shortened: Callable[[Stack], Stack]
) -> tuple[Counter[Stack], Counter[Stack]]:
    """Shorten the rest, and add stacks of it that then equal a kept one to that one's count."""
    short: Counter[Stack] = Counter()
    for stack, count in rest.items():
        short[shortened(stack)] += count
    same = Counter({stack: short.pop(stack) for stack in kept.keys() & short.keys()})
    return kept + same, short


def _function(frame: RawFrame) -> Function:
    return frame.file, frame.function


def is_parked(counts: Counter[Stack], ids: FrameIds) -> bool:
    """True if a thread stayed in one frame outside the user's code and torch: a pool, a feeder, a progress bar."""
    if len(counts) != 1:
        return False
    (stack,) = counts
    return not any(trait.user or trait.part for trait in map(ids.traits, stack))


class WindowStacks:
    """The shortened stacks of one process in one window, added thread by thread."""

    def __init__(self, ids: FrameIds, files: TargetFiles, path: Sequence[Function] = NO_PATH) -> None:
        """``path``: the functions of libraries that lead the training to backward."""
        self._ids = ids
        self._files = files
        self._path = path
        self.stacks: list[StackCount] = []
        self.parked: list[tuple[int, str]] = []  # tid and name of threads that are in no stack
        self.folded = 0  # samples that are in no stack

    def add_thread(self, tid: int, thread: str, stacks: Counter[Stack], matters: bool) -> None:
        """Add one thread's stacks, as they were sampled."""
        short: Counter[Stack] = Counter()
        path = self._path if matters else NO_PATH
        for stack, count in stacks.items():
            if stack:
                short[shorten(stack, self._ids, path)] += count
        if not short or (not matters and is_parked(short, self._ids)):
            self.parked.append((tid, thread))
            return
        room = min(PER_MAIN_THREAD if matters else PER_THREAD, PER_PROCESS - len(self.stacks))
        if room < 2:
            self.folded += sum(short.values())
            return
        listed, lost = most_frequent(short, room, self._ids, path)
        self.folded += lost
        for stack, count in listed:
            self.stacks.append(StackCount(tid, thread, self._ids.ids_of(stack, self._files), count))
