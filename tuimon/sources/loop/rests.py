"""What has passed while the markers of a fast loop rested (``tuimon.agent.rests``): the same boundaries, untimed.

The agent begins a rest only where the markers repeat a period, and counts the boundaries of the rest. So the same
machine that cuts timed steps is fed the markers of the rest as well: their kinds and their number are known, and how
long all of them took together. Their times in between are estimated from the timed periods of the same loop.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from tuimon.agent.ring import layout
from tuimon.agent.ring.columns import Columns, head_of
from tuimon.agent.ring.layout import Marker, Passed

#: Markers kept since the latest rest, and for how long: the agent's bursts have fewer, and take some 30 ms at most.
_MARKERS = 160
_BURST_NS = 1_000_000_000
#: Timed gaps kept of each place in the period.
_GAPS = 32
#: Other periods whose gaps are kept: an evaluation's between two epochs of training.
_PERIODS = 3
#: A gap is a long one from this many times the usual on ...
_LONG = 2
#: ... and what long gaps had beyond the usual is remembered over some dozens of rests.
_DECAY = 0.99
#: What a rest took beyond the usual is one pause from here on: the agent plans none longer than a fifth of it.
_PAUSE_NS = 1_000_000_000


#: Kinds of a period's markers, with the optimizer of each that has one.
_Places = tuple[tuple[int, int], ...]


class PassedFetches(NamedTuple):
    """Fetches of one iterator in a rest, each after the batch before was evaluated; about how long each took."""

    iterator: int
    batches: int
    wait_ns: int
    end_ns: int  # of the last


class RestFiller:
    """Takes the boundaries of one thread, and gives those of its rests."""

    def __init__(self) -> None:
        # of the latest markers, a column for each word of their slots: a list would take five times as much
        self._columns = array("Q"), array("Q"), array("Q")
        self._places: _Places = ()
        self._gaps: list[deque[int]] = []  # ns from the marker before to that at this place in the period
        self._beyond: list[float] = []  # ns that long gaps at this place had beyond the usual
        self._before: dict[_Places, tuple[list[deque[int]], list[float]]] = {}  # the same of periods before this one

    def add_marker(self, marker: Marker) -> None:
        """A boundary with a marker."""
        for column, word in zip(self._columns, (marker.time_ns, head_of(marker), marker.value), strict=True):
            column.append(word)
            if len(column) > 2 * _MARKERS:
                del column[:-_MARKERS]

    def add_markers(self, columns: Columns, begin: int, end: int) -> None:
        """Boundaries with these markers."""
        begin = max(begin, end - _MARKERS)
        for column, words in zip(self._columns, columns, strict=True):
            column.extend(words[begin:end])
            if len(column) > 2 * _MARKERS:
                del column[:-_MARKERS]
        self._drop_old()

    def _drop_old(self) -> None:
        """Drop old ones; few are kept of a slow loop, which has no rests."""
        times_ns = self._columns[0]
        if times_ns and times_ns[0] < times_ns[-1] - _BURST_NS:
            old = bisect_left(times_ns, times_ns[-1] - _BURST_NS)
            for column in self._columns:
                del column[:old]

    def lose_markers(self) -> None:
        """Markers were overwritten before they were read."""
        for column in self._columns:
            del column[:]

    def fill(self, rest: Marker) -> Columns:
        """The boundaries of a rest, in order; none where the ring was found too late to know the period."""
        markers, length = self._take(), rest.flag
        if not 0 < length < len(markers):
            return Columns([], [], [])
        period = [marker._replace(flag=layout.NO_EVENT) for marker in markers[-length:]]
        self._learn(markers, tuple(_place(marker) for marker in period))
        passed = _in_order(period, layout.unpack_rest(rest.value))
        times_ns = list(self._times(markers[-1].time_ns, rest.time_ns, len(passed)))
        return Columns(times_ns, list(map(head_of, passed)), [marker.value for marker in passed])

    def fill_fetches(self, rest: Marker) -> PassedFetches | None:
        """The fetches of an evaluation's rest; None where it is damaged, or the ring was found late."""
        latest, count = self._take(), layout.unpack_rest(rest.value).fetches
        begin, end = latest[-2:] if len(latest) > 2 else (rest, rest)
        if (rest.flag, begin.kind, end.kind) != (2, layout.FETCH_BEGIN, layout.FETCH_END):
            return None
        if begin.value != end.value or count > layout.LONGEST_REST:
            return None
        self._learn(latest, (_place(begin), _place(end)))
        forward, wait = self._usual()  # and one more forward pass before whatever ends the rest
        usual_ns = count * (forward + wait) + forward
        ratio = max(0, rest.time_ns - end.time_ns) / usual_ns if usual_ns else 0.0
        return PassedFetches(begin.value, count, int(wait * ratio), int(end.time_ns + count * (forward + wait) * ratio))

    def _take(self) -> list[Marker]:
        """Hand over the latest markers and forget them: what follows is not their continuation."""
        markers = Columns(*(column[-_MARKERS:].tolist() for column in self._columns)).markers()
        self.lose_markers()
        return markers

    def _learn(self, markers: Sequence[Marker], places: _Places) -> None:
        """Take the gaps of a burst's whole periods."""
        length = len(places)
        if places != self._places:
            self._begin_period(places)
        gaps: list[tuple[int, int]] = []
        for back, (marker, before) in enumerate(pairwise(reversed(markers))):
            place = length - 1 - back % length
            if _place(marker) != places[place]:
                break
            gaps.append((place, max(0, marker.time_ns - before.time_ns)))
        for place, gap_ns in gaps:
            self._gaps[place].append(gap_ns)
        self._beyond = [ns * _DECAY for ns in self._beyond]
        usual = self._usual()
        for place, gap_ns in gaps:
            if gap_ns > _LONG * usual[place]:
                self._beyond[place] += gap_ns - usual[place]

    def _begin_period(self, places: _Places) -> None:
        """Another period; of several updates, a rest may begin after each: then it is the same one, turned."""
        known = self._places
        turn = next((at for at in range(1, len(known)) if known[at:] + known[:at] == places), None)
        self._places = places
        if turn is None:
            if len(self._before) >= _PERIODS:
                del self._before[next(iter(self._before))]
            self._before[known] = self._gaps, self._beyond
            gaps: list[deque[int]] = [deque(maxlen=_GAPS) for _ in places]
            self._gaps, self._beyond = self._before.pop(places, (gaps, [0.0] * len(places)))
        else:
            self._gaps = self._gaps[turn:] + self._gaps[:turn]
            self._beyond = self._beyond[turn:] + self._beyond[:turn]

    def _usual(self) -> list[float]:
        return [median(gaps) if gaps else 0.0 for gaps in self._gaps]

    def _times(self, begin_ns: int, end_ns: int, count: int) -> Iterator[int]:
        """Times for so many boundaries in the rest, and room for the way to the next.

        What the rest took beyond as many usual periods goes to where timed periods took longer than usual: to side
        work that comes every hundred steps. Where none has, and where the rest took less, all gaps change alike. A
        pause is in one step, the last whole one: a loop that stood still for a minute made one long step, not thirty.
        """
        usual, length = self._usual(), len(self._places)
        places = [at % length for at in range(count + 1)]
        beyond_ns = end_ns - begin_ns - sum(usual[place] for place in places)
        changed = self._last_step(len(places)) if beyond_ns >= _PAUSE_NS else range(len(places))
        added = self._shared_out(beyond_ns, Counter(places[at] for at in changed), usual)
        at_ns = float(begin_ns)
        for at, place in enumerate(places[:count]):
            at_ns += usual[place] + (added[place] if at in changed else 0.0)
            yield min(int(at_ns), end_ns)

    def _last_step(self, gaps: int) -> range:
        """The gaps, of so many, of the last whole step: it begins with its fetch, or after the update before."""
        length = len(self._places)
        first = 1 if self._places[0][0] == layout.FETCH_BEGIN else 0
        begin = (gaps - length - first) // length * length + first
        return range(begin, begin + length) if begin >= 0 else range(gaps)

    def _shared_out(self, beyond_ns: float, places: Counter[int], usual: Sequence[float]) -> list[float]:
        """What each gap at a place takes more than usual (less, if negative), with so many gaps at each."""
        weights = [ns if places[place] else 0.0 for place, ns in enumerate(self._beyond)]
        if sum(weights) > 0 and beyond_ns > 0:
            return [beyond_ns * weight / sum(weights) / max(1, places[place]) for place, weight in enumerate(weights)]
        usual_ns = sum(usual[place] * times for place, times in places.items())
        return [ns * beyond_ns / usual_ns if usual_ns > 0 else 0.0 for ns in usual]


def trains(passed: Passed) -> bool:
    """True if more than fetches have passed."""
    return bool(passed.backwards or passed.optimizer_begins or passed.optimizer_ends)


def _place(marker: Marker) -> tuple[int, int]:
    """What distinguishes the markers of a period; iterators change with each epoch, optimizers do not."""
    return marker.kind, marker.value if marker.kind in (layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END) else 0


def _in_order(period: Sequence[Marker], passed: Passed) -> list[Marker]:
    """The boundaries that passed: as many whole periods as all counts allow, and what has begun of another.

    More of them than the agent's rests have is damage: none.
    """
    counts = {
        layout.FETCH_BEGIN: passed.fetches,
        layout.BACKWARD_BEGIN: passed.backwards,
        layout.OPTIMIZER_BEGIN: passed.optimizer_begins,
        layout.OPTIMIZER_END: passed.optimizer_ends,
    }
    each = Counter(marker.kind for marker in period if marker.kind in counts)
    whole = min((counts[kind] // number for kind, number in each.items()), default=0)
    left = {kind: counts[kind] - whole * number for kind, number in each.items()}
    if whole > layout.LONGEST_REST or sum(left.values()) > layout.LONGEST_REST * len(period):
        return []
    begun: list[Marker] = []
    while any(left.values()):  # once, unless the loop has changed its ways within the rest
        for begin, end in zip(period, [*period[1:], period[0]], strict=True):
            if left.get(begin.kind):
                left[begin.kind] -= 1
                begun.append(begin)
                if end.kind not in left:
                    begun.append(end)
    return [*list(period) * whole, *begun]
