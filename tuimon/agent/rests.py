"""Rests of the markers of a fast loop: its boundaries are counted, not timed.

A marker costs 2 us in the cold of a training: 3 % of a step of 0.4 ms with a DataLoader. Where the last markers of the
process repeat one period (``_period``), and cost more than their share of it, bursts of periods with markers take turns
with rests. In a rest a hook checks and lowers one number. Everything else ends it at once: a boundary of another
thread or iterator, the end of an epoch, an error, any other marker of ours. Then a REST marker says how many boundaries
of each kind have passed; in what order, the markers before it say.
"""

from _thread import get_ident
from typing import Any, List, NamedTuple, Optional, Tuple

from . import runtime
from .ring.layout import (
    BACKWARD_BEGIN,
    FETCH_BEGIN,
    FETCH_END,
    GC_PAUSE,
    MARK,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    REST,
    pack_rest,
)

#: What a marker costs, in ns: measured with DataLoader and without, hooks on and off in one process.
MARKER_NS = 2000
#: Rests begin where markers cost more than this share of the loop's time, and end below the other.
_BEGIN_SHARE = 0.008
_END_SHARE = 0.005
#: What markers may cost on average while there are rests.
_BUDGET_SHARE = 0.002
#: Periods of a burst, and of a rest at most: with the shortest steps some tens of milliseconds.
BURST = 8
_LONGEST = 256
#: Nor do steps rest for longer than this.
_LONGEST_NS = 100_000_000
#: Fewer periods of rest than this are not worth its begin and end.
_SHORTEST = 4
#: Markers of the longest period that is looked for, and how often it must have come.
_PERIOD_LIMIT = 36
_REPEATS = 4
_REPEATS_AGAIN = 2
#: Updates until the next try where the loop was not fit for a rest.
_PATIENCE = 64
#: Kinds of markers that do not belong to a loop, and so do not end its rest.
_OF_NO_LOOP = frozenset((GC_PAUSE, MARK))


class _NoRing:
    """Stands in for a writer."""

    def emit(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """Nowhere to write."""


class Rest:
    """What may still pass without a marker; all 0, and ``fetching`` -1, while there is no rest."""

    __slots__ = ("backwards", "begun", "due", "ends", "fetches", "fetching", "thread", "updates", "writer")

    def __init__(self) -> None:
        self.fetching = -1  # id of the iterator
        self.fetches = self.backwards = self.updates = self.ends = 0
        self.thread = 0
        self.due = _PATIENCE  # updates until the next try
        self.begun: Optional[_Begun] = None
        self.leave_ring()

    def leave_ring(self) -> None:
        """Hold no ring any more."""
        self.writer: Any = _NoRing()


class Period(NamedTuple):
    """Markers that repeat: pairs one after the other, an optimizer's the last."""

    length: int
    duration_ns: int
    iterator: int  # -1: no fetches
    fetches: int
    backwards: int
    updates: int


class _Begun(NamedTuple):
    period: Period
    periods: int


rest = Rest()
_is_resting_loop = False  # the loop is fast enough for rests
_latest: Optional[Period] = None  # of the latest rest
_owed = 0  # periods by which it was cut short


def consider() -> None:
    """Begin a rest if the loop is fit for one; call after the marker of an optimizer's end, when ``rest.due`` is 0."""
    global _is_resting_loop, _latest, _owed
    rest.due = _PATIENCE
    writer = runtime.writer()
    if writer is None or runtime.emit != writer.emit or runtime.has_clock():
        return
    writer.flush()
    # the known period first: to look for any takes 150 us
    period = _latest and _period(writer.latest(_latest.length * _REPEATS + 1), _latest)
    period = period or _period(writer.latest(_PERIOD_LIMIT * _REPEATS), _latest)
    if period is None:
        return
    share = period.length * MARKER_NS / max(1, period.duration_ns)
    _is_resting_loop = share > (_END_SHARE if _is_resting_loop else _BEGIN_SHARE)
    periods = _owed or _periods(share, writer.drawn())
    periods = min(periods, _LONGEST_NS // max(1, period.duration_ns))
    _owed = 0
    if _is_resting_loop and periods >= _SHORTEST:
        _latest = period
        _begin(writer, period, periods)


def end() -> None:
    """End the rest and say what has passed."""
    global _owed
    begun, rest.begun = rest.begun, None
    if begun is None:
        return
    period, periods = begun
    passed = (
        period.fetches * periods - rest.fetches,
        period.backwards * periods - rest.backwards,
        period.updates * periods - rest.updates,
        period.updates * periods - 1 - rest.ends,
    )
    _clear()
    writer = rest.writer
    runtime.emit = writer.emit
    writer.hold()
    writer.emit_of(rest.thread, REST, pack_rest(*passed), period.length)
    whole = passed[2] // period.updates
    _owed = periods - whole if whole >= _SHORTEST and periods - whole >= _SHORTEST else 0
    too_short = whole < _SHORTEST
    rest.due = period.updates * (_REPEATS_AGAIN if _owed else BURST) if not too_short else _PATIENCE


def forget() -> None:
    """In a forked child: the rest is the parent's."""
    rest.begun = None
    _clear()


def _begin(writer: Any, period: Period, periods: int) -> None:
    rest.writer = writer
    rest.thread = get_ident()
    runtime.emit = wake
    rest.fetches = period.fetches * periods
    rest.backwards = period.backwards * periods
    rest.updates = period.updates * periods
    rest.ends = rest.updates - 1  # the last has its marker: without a DataLoader it is where a step begins
    rest.begun = _Begun(period, periods)
    rest.fetching = period.iterator


def _clear() -> None:
    rest.fetching = -1
    rest.fetches = rest.backwards = rest.updates = rest.ends = 0


def wake(kind: int, value: int = 0, flag: int = 0) -> None:
    """``runtime.emit`` in a rest."""
    if kind not in _OF_NO_LOOP:
        end()
    rest.writer.emit(kind, value, flag)


def _periods(share: float, drawn: float) -> int:
    """How many periods to rest, of random length: side work every so many steps must not always fall into a rest."""
    mean = BURST * (share / _BUDGET_SHARE - 1)
    return int(min(mean, _LONGEST * 2 / 3) * (0.5 + drawn))


def _period(latest: List[Tuple[int, int, int, int, int]], known: Optional[Period]) -> Optional[Period]:
    """The shortest period that the latest markers (time, kind, flag, tid, value) have repeated; None without one."""
    keys = [(kind, value, tid) for _, kind, _, tid, value in latest]
    if not keys or keys[-1][0] != OPTIMIZER_END:
        return None
    for length in range(2, min(_PERIOD_LIMIT, len(keys) // _REPEATS_AGAIN) + 1, 2):
        if keys[-1 - length] != keys[-1] if length < len(keys) else True:
            continue
        template = keys[-length:]
        repeats = _REPEATS_AGAIN if known is not None and known.length == length else _REPEATS
        if len(keys) > repeats * length and keys[-repeats * length :] == template * repeats:
            flags = [flag for _, kind, flag, _, _ in latest[-repeats * length :] if kind == FETCH_END]
            duration_ns = (latest[-1][0] - latest[-1 - repeats * length][0]) // repeats
            return None if any(flags) else _regular(template, duration_ns)
    return None


def _regular(template: List[Tuple[int, int, int]], duration_ns: int) -> Optional[Period]:
    """The period, if it is one of pairs of one thread, with fetches of one iterator."""
    begins, ends = template[0::2], template[1::2]
    for (kind, value, tid), (end_kind, end_value, end_tid) in zip(begins, ends):
        if kind not in (FETCH_BEGIN, BACKWARD_BEGIN, OPTIMIZER_BEGIN) or end_kind != kind + 1:
            return None
        if value != end_value or tid != end_tid or tid != template[0][2]:
            return None
    kinds = [kind for kind, _, _ in begins]
    iterators = {value for kind, value, _ in begins if kind == FETCH_BEGIN}
    if len(iterators) > 1 or 0 in iterators or not kinds.count(BACKWARD_BEGIN):
        return None
    return Period(
        len(template),
        duration_ns,
        iterators.pop() if iterators else -1,
        kinds.count(FETCH_BEGIN),
        kinds.count(BACKWARD_BEGIN),
        kinds.count(OPTIMIZER_BEGIN),
    )


runtime.end_rest = end
runtime.forget_rest = forget
