"""A run as windows of time, in bounded memory: the one way to a figure over a span of it.

A row is one window: its beginning and end in seconds of the records' clock, then columns of numbers. In addition a row
may have counts by key (a histogram, user ranges, stacks). A series holds ``limit`` rows of one length; beyond that the
oldest two are joined. So a day takes little more room than an hour: the latest minutes stay as they were recorded,
older ones become coarser, and sums stay exact.

>>> class Fetches(NamedTuple):
...     begin_s: float
...     end_s: float
...     batches: float
...     longest_ms: float
>>> series = Series(Fetches, limit=2, how={"longest_ms": max})
>>> for second in range(7):
...     series.append(Fetches(second, second + 1, 10, 5 * second), {second % 2: 1})
>>> [(row.begin_s, row.end_s) for row in series.rows()]
[(0.0, 4.0), (4.0, 6.0), (6.0, 7.0)]
>>> series.over(Span(4.0, 7.0))
Fetches(begin_s=4.0, end_s=7.0, batches=30.0, longest_ms=30.0)
>>> series.part(4.5, 6.5).batches
20.0
>>> series.counts(Span(4.0, 7.0))
{0: 2, 1: 1}
>>> series.over(Span(last_s=1.5))
Fetches(begin_s=6.0, end_s=7.0, batches=10.0, longest_ms=30.0)
>>> [(row.begin_s, row.end_s) for row in series.even_rows()]
[(0.0, 4.0), (4.0, 7.0)]
"""

from __future__ import annotations

import math
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, pairwise
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from tuimon.bounds import HELD

#: The time that "recent" figures cover, in seconds.
WINDOW_S = 30.0


class Span(NamedTuple):
    """A stretch of the run, in seconds of the records' clock."""

    begin_s: float = -math.inf
    end_s: float = math.inf
    last_s: float = math.inf  # only this many last seconds of the known part, and at least its last row


class Stretch(NamedTuple):
    """Consecutive windows with counts alone; a row of a ``Series``."""

    begin_s: float
    end_s: float


def row_of(*names: str) -> type[Any]:
    """A row with these columns, for a series that is read by columns alone: its attributes have no types."""
    return namedtuple("Row", ("begin_s", "end_s", *names))


#: A span in which nothing lies.
NEVER = Span(math.inf, -math.inf)
WHOLE_RUN = Span()
#: The span of the latest row.
LATEST = Span(last_s=0.0)


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values that were measured; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def sum_of_all(values: Iterable[float | None]) -> float | None:
    """The sum of the values; None if there are none, or if one was not measured."""
    all_values = list(values)
    known = [value for value in all_values if value is not None]
    return sum(known) if known and len(known) == len(all_values) else None


def weighted_median(values: Iterable[tuple[float, float]]) -> float | None:
    """The lower median of (value, weight) pairs; None if there are none."""
    ordered = sorted(values)
    half = sum(weight for _, weight in ordered) / 2
    for value, weight in ordered:
        half -= weight
        if half <= 0:
            return value
    return None


def sampling_error(share: float, samples: float) -> float:
    """Half the width of the 95 % interval of a share (0..1) of a number of samples (binomial, normal approximation)."""
    return 1.96 * math.sqrt(max(0.0, share * (1.0 - share)) / max(1.0, samples))


def share_error(share: float, samples: int) -> float:
    """``sampling_error``, but never below the share of one sample."""
    return max(sampling_error(share, samples), 1.0 / samples)


K = TypeVar("K")
R = TypeVar("R", bound=tuple[float, ...])
#: Counts by key: numbers, or objects of one kind.
Counts = Mapping[Any, int]
_Packed: TypeAlias = "array[int] | tuple[Any, ...]"
Joins = Callable[[Sequence[float]], float]
#: Rows of each length that a series holds: windows of 1 s for eight minutes, of 2 s for sixteen before these ...; a day
#: makes eight lengths, some 4,000 rows.
ROWS_EACH = 512
#: The same for a series that is read at full resolution only over the last half minute.
FEW_ROWS = 32


def first(values: Sequence[float]) -> float:
    """The first of the values of a column, for columns of ordinal numbers."""
    return values[0]


def latest(values: Sequence[float]) -> float:
    """The latest measured value; NaN if there is none."""
    return next((value for value in reversed(values) if not math.isnan(value)), math.nan)


@cache
def _joins_of(
    fields: tuple[str, ...], how: tuple[tuple[str, Joins], ...]
) -> tuple[Sequence[Joins], Sequence[int], Sequence[tuple[int, Joins]]]:
    """How each column is joined: by summing up, or by a function of its own."""
    joins: dict[str, Joins] = {"begin_s": first, "end_s": max, **dict(how)}
    each = [joins.get(name, sum) for name in fields]
    summed = [at for at, join in enumerate(each) if join is sum]
    return each, summed, [(at, join) for at, join in enumerate(each) if join is not sum]


class Series(Generic[R]):
    """The windows of one process, device or loader; the head of this module explains it."""

    __slots__ = (
        "_apart", "_counts", "_how", "_levels", "_make", "_names", "_not_summed", "_numbers", "_row", "_summed",
        "_sums", "_total", "_width", "limit",
    )  # fmt: skip

    #: True: a row that begins before a span is left out, even if its middle lies inside.
    begin_inside: ClassVar[bool] = False

    def __init__(self, row: type[R], limit: int = ROWS_EACH, how: Mapping[str, Joins] | None = None) -> None:
        """``row``: a named tuple: ``begin_s``, ``end_s``, columns. ``how`` to join columns that are not summed up."""
        self.limit = limit
        make: Any = row  # no type says that a class is a named tuple
        self._row: Callable[..., R] = make
        self._make: Callable[[Iterable[float]], R] = make._make
        self._how, self._summed, self._not_summed = _joins_of(make._fields, tuple((how or {}).items()))
        self._names: Sequence[str] = make._fields
        self._width = len(self._how)
        self._numbers = array("d")
        self._counts: list[_Packed | None] = []  # of each row: key, count, key, count ...
        self._levels = bytearray()  # of each row: 2 ** level windows are joined in it; never rises
        self._apart: tuple[float, ...] = ()
        self._sums: dict[tuple[int, int], R] = {}  # by first row, and the one after the last, since the latest window
        self._total: dict[Any, int] | None = None  # the counts of all rows; None: not asked for yet

    def __len__(self) -> int:
        return len(self._counts)

    def append(self, row: R, counts: Counts | None = None) -> None:
        """Add a window; a late one is inserted before those that begin after it."""
        self._sums.clear()
        at, levels, numbers = len(self), self._levels, self._numbers
        while at and levels[at - 1] == 0 and numbers[(at - 1) * self._width] > row[0]:
            at -= 1
        if at < len(self):
            numbers[at * self._width : at * self._width] = array("d", row)
        else:
            numbers.extend(row)
        packed = _packed(counts)
        self._counts.insert(at, packed)
        if self._total is not None:
            _add(self._total, [packed])
        levels.insert(at, 0)
        level = 0
        while levels.count(level) > self.limit:
            self._join_oldest_of(level)
            level += levels.count(level) <= self.limit

    def fold(self, record: Any, counts: Counts | None = None, **columns: float) -> None:  # noqa: ANN401  (a record)
        """Add the window of a record: its fields that have a column's name, unless ``columns`` has it.

        A missing value adds nothing to a sum; in any other column it becomes NaN.
        """
        columns["end_s"] = record.t
        if "begin_s" not in columns:
            columns["begin_s"] = record.t - record.window_s
        for name, join in zip(self._names, self._how, strict=True):
            if name not in columns:
                value = getattr(record, name)
                columns[name] = value if value is not None else 0.0 if join is sum else math.nan
        self.append(self._row(**columns), counts)

    def keep_apart(self, t: float) -> None:
        """Never join two rows across ``t``, as a span may begin there; only the latest 64 moments are kept."""
        if t not in self._apart:
            self._apart = (*self._apart[-63:], t)

    def drop(self, is_dropped: Callable[[R], bool]) -> None:
        self._sums.clear()
        self._total = None
        for at, row in reversed([*enumerate(self.rows())]):
            if is_dropped(row):
                del self._numbers[at * self._width : (at + 1) * self._width], self._counts[at], self._levels[at]

    def rows(self, span: Span = WHOLE_RUN, last: int | None = None) -> list[R]:
        """The rows of a span, oldest first: those that have their middle in it; of them only the ``last`` ones."""
        begin, end = self._within(span)
        return self._rows(begin if last is None else max(begin, end - last), end)

    def even_rows(self, span: Span = WHOLE_RUN) -> list[R]:
        """The rows of a span, neighbours joined until all are of about the length of the longest."""
        begin, end = self._within(span)
        levels = self._levels
        if begin == end or levels[begin] == levels[end - 1]:
            return self._rows(begin, end)
        begins, filled = [begin], 0
        for row in range(begin, end):
            if filled >= 2 ** levels[begin]:
                begins.append(row)
                filled = 0
            filled += 2 ** levels[row]
        return [self._joined(*each) for each in pairwise([*begins, end])]

    def course(self, span: Span, last: int) -> list[R]:
        """The rows of a span for a chart: stretches of equal length; for a span of last seconds, the latest rows."""
        return self.rows(last=last) if span.last_s < math.inf else self.even_rows(span)

    def columns(self, span: Span = WHOLE_RUN, names: Sequence[str] = ()) -> dict[str, array[float]]:
        """The rows of a span as columns, all or those of these names: quicker than rows if only some are needed."""
        (begin, end), numbers, width = self._within(span), self._numbers, self._width
        first = {name: begin * width + self._names.index(name) for name in names or self._names}
        return {name: numbers[at : end * width : width] for name, at in first.items()}

    def over(self, span: Span = WHOLE_RUN) -> R | None:
        """The sums of a span as one row; None if it has no row."""
        begin, end = self._within(span)
        if begin < end and (begin, end) not in self._sums:
            self._sums[begin, end] = self._joined(begin, end)
        return self._sums.get((begin, end))

    def part(self, begin_s: float, end_s: float) -> R | None:
        """The sums of a stretch of time; a row that lies partly in it counts for that part, as if it were even."""
        numbers, width, rows = self._numbers, self._width, range(len(self))
        begin = bisect_right(rows, begin_s, key=lambda row: numbers[row * width + 1])
        end = bisect_left(rows, end_s, key=lambda row: numbers[row * width])
        if begin >= end or begin_s >= end_s:
            return None
        whole, until = begin + (numbers[begin * width] < begin_s), end - (numbers[(end - 1) * width + 1] > end_s)
        found = [self._joined(whole, until)] if whole < until else []
        for edge in {*range(begin, whole), *range(until, end)}:
            (row,) = self._rows(edge, edge + 1)
            part = (min(row[1], end_s) - max(row[0], begin_s)) / (row[1] - row[0])
            cut = self._make(part * x if column in self._summed else x for column, x in enumerate(row))
            found.insert(0 if edge == begin else len(found), cut)
        return self.joined(found)

    def counts(self, span: Span = WHOLE_RUN) -> dict[Any, int]:
        """The counts of a span: those of its rows, or those of all rows less those outside, whichever are fewer."""
        (begin, end), rows = self._within(span), self._counts
        if 2 * (end - begin) <= len(rows):
            return _add({}, rows[begin:end])
        if self._total is None:
            self._total = _add({}, rows)
        return _subtract(dict(self._total), rows[:begin] + rows[end:])

    def joined(self, rows: Sequence[R]) -> R:
        """One or more neighbouring rows, joined into one."""
        return self._make(join(column) for join, column in zip(self._how, zip(*rows, strict=True), strict=True))

    def _rows(self, begin: int, end: int) -> list[R]:
        numbers, width, make = self._numbers, self._width, self._make
        return [make(numbers[at : at + width]) for at in range(begin * width, end * width, width)]

    def _within(self, span: Span) -> tuple[int, int]:
        """The first row of a span, and the one after its last."""
        rows, middle_s = range(len(self)), self._middle_s
        moment_s = self._begin_s if self.begin_inside else middle_s
        begin = bisect_left(rows, span.begin_s, key=moment_s) if span.begin_s > -math.inf else 0
        end = max(begin, bisect_right(rows, span.end_s, key=middle_s) if span.end_s < math.inf else len(rows))
        if span.last_s < math.inf and begin < end:
            since_s = self._numbers[(end - 1) * self._width + 1] - span.last_s
            begin = max(begin, min(bisect_left(rows, since_s, key=middle_s), end - 1))
        return begin, end

    def shrunk(self, counts: dict[Any, int]) -> dict[Any, int]:
        """The counts that a joined row keeps: all of them."""
        return counts

    def _begin_s(self, row: int) -> float:
        return self._numbers[row * self._width]

    def _middle_s(self, row: int) -> float:
        at = row * self._width
        return (self._numbers[at] + self._numbers[at + 1]) / 2

    def _joined(self, begin: int, end: int) -> R:
        numbers, width = self._numbers, self._width
        columns = (numbers[at : end * width : width] for at in range(begin * width, (begin + 1) * width))
        return self._make(join(column) for join, column in zip(self._how, columns, strict=True))

    def _join_oldest_of(self, level: int) -> None:
        """Join the two oldest rows of a level; a row that must stay apart from the next moves up alone."""
        at, numbers, counts = self._levels.find(level), self._numbers, self._counts
        one, other = at * self._width, (at + 1) * self._width
        self._levels[at] += 1
        middle_s, next_s = self._middle_s(at), self._middle_s(at + 1)
        if any(middle_s < t <= next_s for t in self._apart):
            return
        for column in self._summed:
            numbers[one + column] += numbers[other + column]
        for column, how in self._not_summed:
            numbers[one + column] = how((numbers[one + column], numbers[other + column]))
        del numbers[other : other + self._width], self._levels[at + 1]
        following = counts.pop(at + 1)
        if following is not None:
            sums = _add({}, (counts[at], following))
            kept = self.shrunk(sums)
            counts[at] = _packed(kept)
            if kept is not sums and self._total is not None:
                _subtract(self._total, [_packed(sums)])
                _add(self._total, [counts[at]])


@cache
def _layout_of(columns: int) -> struct.Struct:
    """The format of a packed step: its number and moment, and seven digits of each value, as there are many ranks."""
    return struct.Struct("=dd" + "f" * (columns - 2))


class ThinnedRows(Generic[R]):
    """Single steps of one of several ranks: the latest, and some of the whole run, evenly spread.

    A row is a named tuple of numbers, first the number by which ranks are compared, then a moment. Over the run, steps
    are kept whose number is a multiple of a stride; it doubles when they become too many, in the same way in all ranks.
    """

    __slots__ = ("_latest", "_layout", "_limits", "_make", "_run", "_stride")

    def __init__(self, row: type[R], latest: int, run: int) -> None:
        """``latest``, ``run``: the most rows that are held of the latest, and of the whole run."""
        make: Any = row  # no type says that a class is a named tuple
        self._make: Callable[[Iterable[float]], R] = make._make
        self._layout = _layout_of(len(make._fields))
        self._limits = latest * self._layout.size, run * self._layout.size
        self._latest, self._run = bytearray(), bytearray()
        self._stride = 1

    def append(self, row: R) -> None:
        """Add one, later than those before."""
        packed = self._layout.pack(*row)
        self._latest += packed
        if len(self._latest) > self._limits[0]:
            del self._latest[: self._layout.size]
        if row[0] % self._stride == 0:
            self._run += packed
        if len(self._run) > self._limits[1]:
            self._stride *= 2
            kept = (each for each in self._layout.iter_unpack(self._run) if each[0] % self._stride == 0)
            self._run = bytearray().join(self._layout.pack(*each) for each in kept)
            del self._run[self._limits[1] :]

    def over(self, span: Span) -> list[R]:
        """The rows since a span's beginning: from the latest ones if only last seconds count, else from the run's."""
        rows = map(self._make, self._layout.iter_unpack(self._latest if span.last_s < math.inf else self._run))
        return [row for row in rows if row[1] >= span.begin_s]


class KeyNumbers(Generic[K]):
    """Numbers that stand for the keys of counts, with a fixed number of figures each, so that a series holds only
    numbers.

    >>> keys = KeyNumbers[str](figures=2)
    >>> counts = keys.counts([("compile", 1, 300), ("break", 1, 0), ("compile", 2, 500)])
    >>> counts, keys.figures(counts)
    ({0: 3, 1: 800, 2: 1}, {'compile': (3, 800), 'break': (1, 0)})
    """

    __slots__ = ("_figures", "_limit", "numbers")

    def __init__(self, figures: int, limit: int = HELD) -> None:
        """``figures``: of each key; ``limit``: the most keys that are counted."""
        self._figures, self._limit = figures, limit
        self.numbers: dict[K, int] = {}

    def counts(self, found: Iterable[tuple[Any, ...]]) -> dict[int, int]:
        """The counts of keys, each followed by its figures."""
        counts: dict[int, int] = {}
        for key, *figures in found:
            number = self.numbers.get(key)
            if number is None:
                number = len(self.numbers)
                if number >= self._limit:
                    continue
                self.numbers[key] = number
            for each, figure in enumerate(figures, self._figures * number):
                if figure:
                    counts[each] = counts.get(each, 0) + figure
        return counts

    def figures(self, counts: Counts) -> dict[K, tuple[int, ...]]:
        wide, found = self._figures, {each // self._figures for each in counts}
        each = ((key, wide * number) for key, number in self.numbers.items() if number in found)
        return {key: tuple([counts.get(n, 0) for n in range(at, at + wide)]) for key, at in each}


def _packed(counts: Counts | None) -> _Packed | None:
    if not counts:
        return None
    flat = tuple(chain.from_iterable(counts.items()))
    with suppress(OverflowError):  # only damaged logs have such counts
        return array("q", flat) if isinstance(flat[0], int) else flat
    return flat


def _add(sums: dict[Any, int], rows: Iterable[_Packed | None]) -> dict[Any, int]:
    for packed in rows:
        if packed:
            for key, count in zip(packed[::2], packed[1::2], strict=True):
                sums[key] = sums.get(key, 0) + count
    return sums


def _subtract(sums: dict[Any, int], rows: Iterable[_Packed | None]) -> dict[Any, int]:
    for packed in rows:
        if packed:
            for key, count in zip(packed[::2], packed[1::2], strict=True):
                left = sums.get(key, 0) - count
                if left:
                    sums[key] = left
                else:
                    sums.pop(key, None)
    return sums
