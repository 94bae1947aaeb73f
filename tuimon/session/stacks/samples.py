"""The samples of a thread over a span, each in its phase, with the queries of rules and views."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tuimon.code_origin import WITHIN, innermost_work
from tuimon.records import BETWEEN, DIVIDED, PASSES, Frame, Place
from tuimon.session.phase_table import Moved, SplitShares
from tuimon.session.series import sampling_error
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.call_tree import CallTree, program_part
from tuimon.session.stacks.trie import FrameKind, Function, KnownFrame, Role, StackNode
from tuimon.threshold import MIN_SAMPLES
from tuimon.torch_code import is_module_call

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The prefix of a filter by a user range; a filter by a phase is its bare name.
RANGE = "range:"

K = TypeVar("K")
Test: TypeAlias = Callable[[StackNode], bool]


class Sample(Struct, frozen=True):
    """A stack of a thread, the number of its samples, and its phase.

    Before its phase is known, that is the innermost boundary that it is in: a ``StackPhase``.
    """

    node: StackNode
    count: int
    phase: str
    excluded: bool = False  # from dividing what markers leave open: they measure its phase
    unsure: bool = False  # "forward" may be "data", or "other" either of them: nothing shows yet which
    moved_from: str | None = None  # the phase that markers count it in, if they cannot separate that from its own
    ranges: tuple[str, ...] = ()  # paths of the user's ranges that it lies in, outer ones first

    def in_phase(self, phase: str, counted: str | None = None, *, moved: bool = False, unsure: bool = False) -> Sample:
        """The sample in another phase; ``counted``: in which markers measure it, inseparably if ``moved``."""
        moved_from = counted if moved and counted != phase else None
        return Sample(self.node, self.count, phase, counted is not None, unsure, moved_from)


class Where(TypedDict, total=False):
    """The selection of a query; None selects all."""

    phase: str | Collection[str] | None  # or some, or a user range
    doing: Activity | Collection[Activity] | None
    below: Role | FrameKind | Function | None  # a frame with a role, or of a kind; a user function


class Samples(Struct, frozen=True, dict=True):
    """The samples of one thread, or of several, over a span; queries select by ``Where``, and by any test of a node."""

    rows: tuple[Sample, ...] = ()
    covered_s: float = 0.0  # from the beginning of the first window to the end of the last

    @classmethod
    def joined(cls, several: Iterable[Samples]) -> Samples:
        """The samples of several threads together."""
        return cls(tuple(row for samples in several for row in samples.rows))

    @cached_property
    def total(self) -> int:
        return sum(row.count for row in self.rows)

    def where(self, test: Test | None = None, **where: Unpack[Where]) -> Samples:
        rows: Iterable[Sample] = self.rows
        phase, doing, below = where.get("phase"), where.get("doing"), where.get("below")
        if isinstance(phase, str) and phase.startswith(RANGE):
            rows = [row for row in rows if phase.removeprefix(RANGE) in row.ranges]
        elif phase is not None:
            phases = (phase,) if isinstance(phase, str) else phase
            rows = [row for row in rows if row.phase in phases]
        if doing is not None:
            activities = (doing,) if isinstance(doing, str) else doing
            rows = [row for row in rows if row.node.activity in activities]
        if isinstance(below, str):
            rows = [row for row in rows if row.node.has(below)]
        elif below is not None:
            rows = [row for row in rows if below in row.node.functions]
        return Samples(tuple(rows if test is None else [row for row in rows if test(row.node)]), self.covered_s)

    def part(self, test: Test | None = None, **where: Unpack[Where]) -> float:
        """Share (0..1) of the samples that match, however few there are; 0 without any."""
        return self.where(test, **where).total / self.total if self.total else 0.0

    def share(self, test: Test | None = None, **where: Unpack[Where]) -> float | None:
        """``part``, but None with fewer than ``MIN_SAMPLES``."""
        return None if self.total < MIN_SAMPLES else self.part(test, **where)

    def inside(self, is_it: Callable[[KnownFrame], bool]) -> Samples:
        """The samples below the outermost frame of this kind, whose callers are cut off; without imports."""
        rows = []
        for row in self.rows:
            depth = next((depth for depth, frame in enumerate(row.node.frames) if is_it(frame)), None)
            if depth is not None:
                rows.append(replace(row, node=row.node.trie.node(row.node.ids[depth:])))
        return Samples(tuple(rows), self.covered_s).without_imports

    def counted(self, by: Callable[[Sample], Iterable[K]]) -> Counter[K]:
        """The number of samples by key; a sample may have several keys."""
        counts: Counter[K] = Counter()
        for row in self.rows:
            for key in by(row):
                counts[key] += row.count
        return counts

    @cached_property
    def phases(self) -> Counter[str]:
        return self.counted(lambda row: (row.phase,))

    @cached_property
    def ranges(self) -> Counter[str]:
        """Samples by the path of a user range; those around others hold their samples as well."""
        return self.counted(lambda row: row.ranges)

    @cached_property
    def through(self) -> Counter[Function]:
        """Samples by each user function that they go through."""
        return self.counted(lambda row: row.node.functions)

    @cached_property
    def training_path(self) -> frozenset[Function]:
        """The user's functions that lead to the model and to the update, without the code that they call."""
        return frozenset(self.where(phase=PASSES).through)

    @cached_property
    def in_steps(self) -> Samples:
        """The samples outside evaluation."""
        return Samples(tuple(row for row in self.rows if row.phase != "eval"), self.covered_s)

    @cached_property
    def without_bare_module_calls(self) -> Samples:
        """The samples whose stack does not end in a call of a module, which leaves open what the module runs.

        The dropped stacks are rare ones, merged for the log, or were read while they changed.
        """
        calls = {
            stack[:depth]
            for stack in (row.node.frames for row in self.rows)
            for depth, frame in enumerate(stack[:-1], 1)
            if is_module_call(frame.file, frame.function)
        }
        return self.where(lambda node: node.frames not in calls)

    @cached_property
    def without_imports(self) -> Samples:
        """The samples outside imports, as a step imports a module only once.

        If the loop itself runs while its module is imported, all samples are kept.
        """
        if any(row.phase == "backward" and row.node.import_depth for row in self.rows):
            return self
        return self.where(lambda node: not node.import_depth)

    # ---- lines and functions

    def lines(self) -> list[HotLine]:
        """The innermost user lines, each once, most samples first; shares are of all samples."""
        places = self.counted(lambda row: () if row.node.place is None else (row.node.place,))
        first, counts = dict[tuple[str, int], Place](), Counter[Place]()  # a lambda shares the line of its function
        for place, n in places.most_common(20):
            counts[first.setdefault((place.file, place.line), place)] += n
        return [HotLine(place, n / self.total, n) for place, n in counts.most_common()]

    def hottest(self, test: Test | None = None, **where: Unpack[Where]) -> HotLine | None:
        """The user's function with most of the samples that match, at its hottest line; its share is of all samples."""
        matching = self.where(test, **where).rows
        return hottest_place(((row.node.place, row.count) for row in matching), self.total)

    def with_callees(self, hot: HotLine | None, path: Collection[Function] = ()) -> HotLine | None:
        """The function, with its share of all samples that pass through it; unchanged if it is on the ``path``.

        ``path``: functions, by file and name, that call the training itself.
        """
        if hot is None or not self.total or hot.place.code in path:
            return hot
        inside = self.where(below=hot.place.code).total
        return hot._replace(share=max(hot.share, inside / self.total), samples=max(hot.samples, inside))

    @cached_property
    def _drawn(self) -> dict[object, Any]:
        return {}

    def table(self, part: str | None = None, *, libraries: bool = False) -> LineTable:
        """The hot lines of a phase or range (None: of all), see ``line_table``."""
        key = part, libraries
        if key not in self._drawn:
            self._drawn[key] = line_table(self.where(phase=part).rows, libraries=libraries)
        found: LineTable = self._drawn[key]
        return found

    def tree(self, part: str | None = None) -> CallTree:
        """The call tree of a phase or range (None: of all)."""
        if part not in self._drawn:
            tree = self._drawn[part] = CallTree()
            for row in self.where(phase=part).rows:
                tree.add_stack(program_part(row.node.frames), row.count, row.phase)
        found: CallTree = self._drawn[part]
        return found

    # ---- the time that markers leave open

    def marked_counts(self) -> Counter[str]:
        """Samples by phase as markers would count them, without imports.

        The loop's own lines between the fetch and the model belong to the forward pass.
        """
        return self.without_imports.counted(
            lambda row: ("forward" if row.phase == "data" and row.excluded and row.moved_from is None else row.phase,)
        )

    @cached_property
    def unsure(self) -> Counter[str]:
        """The number of samples of each phase that may belong to another one, because nothing shows yet which."""
        return self.counted(lambda row: (row.phase,) if row.unsure else ())

    @cached_property
    def split(self) -> SplitShares:
        """The division of the samples outside fetch, backward and optimizer."""
        steps = sum(row.count for row in self.rows if row.phase != "eval" or row.moved_from is not None)  # by markers
        places = self.counted(lambda row: () if row.moved_from is None else ((row.moved_from, row.phase),))
        moved = tuple(Moved(*of_to, n / steps, steps) for of_to, n in places.items() if of_to[0] != BETWEEN)
        rows = self.without_imports.rows
        own = [row for row in rows if row.phase in DIVIDED and not row.node.has("fetch")]
        open_ones = Samples(tuple(row for row in own if not row.excluded))
        if open_ones.total < MIN_SAMPLES:  # several passes of one batch: markers leave open what lies between them
            open_ones = Samples(tuple(own))
        outside: dict[str, int] = {phase: open_ones.phases[phase] for phase in DIVIDED}
        unsure = open_ones.unsure
        if evaluated := sum(n for of_to, n in places.items() if of_to[0] == BETWEEN):
            outside["eval"] = evaluated
        total = sum(outside.values())
        if not total:
            return SplitShares(moved=moved)
        closures = any(row.phase == "forward" and row.node.has("optimizer") for row in self.rows)
        return SplitShares(
            {name: n / total for name, n in outside.items()},
            total,
            self.phases["optimizer"] / steps if closures else None,
            unsure["forward"] / total,
            unsure["other"] / total,
            moved,
        )


NO_SAMPLES = Samples()


def hottest_place(placed: Iterable[tuple[Place | None, int]], total: int | None = None) -> HotLine | None:
    """The function with most of these samples, at its hottest line; None if there are none.

    Shares are of ``total``, else of all that are given, including those without a place.
    """
    placed = [*placed]
    place, samples = heaviest_place((place, count) for place, count in placed if place is not None)
    total = sum(count for _, count in placed) if total is None else total
    return HotLine(place, samples / total, int(samples)) if place is not None else None


def heaviest_place(weighed: Iterable[tuple[Place, float]]) -> tuple[Place | None, float]:
    """The heaviest line of the heaviest function, and that function's weight; (None, 0.0) if there is none."""
    lines, functions = defaultdict[Place, float](float), defaultdict[Function, float](float)
    for place, weight in weighed:
        lines[place] += weight
    for place, weight in sorted(lines.items(), key=lambda line: -line[1]):
        functions[place.code] += weight
    most = max(functions, key=functions.__getitem__, default=None)
    line = max((place for place in lines if place.code == most), key=lines.__getitem__, default=None)
    return line, functions[most] if most is not None else 0.0


class HotLine(NamedTuple):
    """A user line, or a function at its hottest line, and its share of some samples."""

    place: Place
    share: float  # 0..1
    samples: int  # 0: its share was measured by markers
    library: Place | None = None  # the place inside it, if a library that the line calls owns the loop

    @property
    def error(self) -> float:
        return sampling_error(self.share, self.samples / self.share) if self.share and self.samples else 0.0


class LineShare(NamedTuple):
    """One line and its part of the selected samples."""

    place: Place
    user: bool
    own: int  # samples in which this was the innermost line of the user's code (of any code, with libraries)
    total: int  # samples in which the line was anywhere in the stack
    activity: Activity  # of most of its own samples; of all its samples if it has none of its own


class LineTable(NamedTuple):
    """The hot lines of the selected samples, most own samples first."""

    lines: tuple[LineShare, ...]
    samples: int  # the base of shares
    activities: tuple[tuple[Activity, int], ...]  # all samples by what the thread was doing, most first


def line_table(rows: Iterable[Sample], *, libraries: bool = False) -> LineTable:
    """Own and total samples of each line.

    A library's time counts as own time of the user's line that called it; without user code, of the innermost line of a
    package, torch last. With ``libraries`` every line counts by itself. A line counts once for a stack, however often
    it recurses.
    """
    frames: dict[tuple[str, int, str], Frame] = {}  # by line: the function there, not what is within it
    own, total = (defaultdict[tuple[str, int, str], Counter[Activity]](Counter) for _ in range(2))
    everything: Counter[Activity] = Counter()

    def line_of(frame: Frame) -> tuple[str, int, str]:
        line = frame.file, frame.line, "" if frame.line else frame.function  # without a number, a function
        if frames.setdefault(line, frame).function in WITHIN:
            frames[line] = frame
        return line

    for row in rows:
        stack, doing = program_part(row.node.frames), row.node.activity
        everything[doing] += row.count
        innermost = stack[-1] if stack and libraries else next((f for f in reversed(stack) if f.user), None)
        if innermost is None and stack:
            innermost = innermost_work(stack)
        for line in {line_of(frame) for frame in stack if libraries or frame.user or frame is innermost}:
            total[line][doing] += row.count
        if innermost is not None:
            own[line_of(innermost)][doing] += row.count
    lines = [
        LineShare(
            place=Place(frame.file, frame.line, frame.function, frame.source),
            user=frame.user,
            own=own[line].total(),
            total=total[line].total(),
            activity=(own[line] or total[line]).most_common(1)[0][0],
        )
        for line, frame in frames.items()
    ]
    lines.sort(key=lambda x: (-x.own, -x.total, x.place))
    return LineTable(tuple(lines[:500]), everything.total(), tuple(everything.most_common()))
