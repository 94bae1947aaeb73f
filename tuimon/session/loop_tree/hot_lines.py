"""Hot lines: own and total share of each line of code, and what the thread was doing there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from tuimon.code_origin import WITHIN, innermost_work
from tuimon.records import Frame, Place
from tuimon.session.loop_tree.activity import Activity, activity_of
from tuimon.session.loop_tree.stacks import StackSample
from tuimon.session.loop_tree.tree import program_part
from tuimon.session.rows import HotLine

#: How many lines a table lists, those with most own samples.
LINES_LIMIT = 500


class LineShare(NamedTuple):
    """One line and its part of the selected samples."""

    place: Place
    user: bool
    own: int  # samples in which this was the innermost line of the user's code (of any code, with libraries)
    total: int  # samples in which the line was anywhere in the stack
    activity: Activity  # of most of its own samples; of all its samples where it has none of its own

    @property
    def key(self) -> tuple[str, int, str]:
        """The identity of this line from refresh to refresh."""
        return self.place.file, self.place.line, self.place.function


class LineTable(NamedTuple):
    """The hot lines of the selected samples, most own samples first."""

    lines: tuple[LineShare, ...]
    samples: int  # what shares are of
    activities: tuple[tuple[Activity, int], ...]  # all samples by what the thread was doing, most first


def by_line(lines: Iterable[HotLine]) -> list[HotLine]:
    """One row for each line of the file, most samples first: a lambda shares that of its function."""
    rows: dict[tuple[str, int], HotLine] = {}
    for found in sorted(lines, key=lambda found: -found.samples):
        key = found.place.file, found.place.line
        row = rows.get(key)
        more = row and row._replace(share=row.share + found.share, samples=row.samples + found.samples)
        rows[key] = more or found
    return sorted(rows.values(), key=lambda found: -found.samples)


_Line = tuple[str, int, str]


class _Tally(Struct):
    frame: Frame
    own: int = 0
    total: int = 0
    own_activities: Counter[Activity] = field(default_factory=Counter)
    total_activities: Counter[Activity] = field(default_factory=Counter)


def line_table(samples: Iterable[StackSample], phase: str | None = None, *, libraries: bool = False) -> LineTable:
    """Own and total samples of each line, of the samples of a phase (None: of all).

    A library's time counts as the own time of the user's line that called it, unless ``libraries`` lists every line by
    itself. A line counts once for a stack, however often it recurses.
    """
    tallies: dict[_Line, _Tally] = {}
    everything: Counter[Activity] = Counter()
    for sample in samples:
        if not sample.lies_in(phase):
            continue
        stack = program_part(sample.frames)
        doing = activity_of(stack)
        everything[doing] += sample.count
        for frame in {_line(f): f for f in reversed(stack) if libraries or f.user}.values():
            tally = _tally(tallies, frame)
            tally.total += sample.count
            tally.total_activities[doing] += sample.count
        innermost = _innermost(stack, libraries)
        if innermost is not None:
            tally = _tally(tallies, innermost)
            tally.own += sample.count
            tally.own_activities[doing] += sample.count
            if not libraries and not innermost.user:
                tally.total += sample.count
                tally.total_activities[doing] += sample.count
    lines = sorted((_share(tally) for tally in tallies.values()), key=lambda x: (-x.own, -x.total, x.place))
    return LineTable(tuple(lines[:LINES_LIMIT]), everything.total(), tuple(everything.most_common()))


def _line(frame: Frame) -> _Line:
    """The key of a row: a line of a file; without a number, a function."""
    return frame.file, frame.line, "" if frame.line else frame.function


def _tally(tallies: dict[_Line, _Tally], frame: Frame) -> _Tally:
    key = _line(frame)
    tally = tallies.get(key)
    if tally is None:
        tally = tallies[key] = _Tally(frame)
    elif tally.frame.function in WITHIN:
        tally.frame = frame  # the row is called by the function, not by what is within it
    return tally


def _innermost(stack: Sequence[Frame], libraries: bool) -> Frame | None:
    """The line whose own time a stack is; without user code the innermost of a package, torch last, then the leaf."""
    if not stack or libraries:
        return stack[-1] if stack else None
    user = next((frame for frame in reversed(stack) if frame.user), None)
    return user or stack[innermost_work([frame.file for frame in stack])]


def _share(tally: _Tally) -> LineShare:
    frame = tally.frame
    doing = tally.own_activities or tally.total_activities
    activity = doing.most_common(1)[0][0]
    place = Place(frame.file, frame.line, frame.function, frame.source)
    return LineShare(place, frame.user, tally.own, tally.total, activity)
