"""Rests of the markers of a fast loop: its boundaries are counted, not timed.

A marker costs 2 us in a training, whose caches are cold: 3 % of a step of 0.4 ms with a DataLoader. Where the last
markers of the process repeat one period, and cost more than their share of it, bursts of periods with markers take
turns with rests.
In a rest the hooks of fetches, and of where updates begin, check and lower one number; those of the backward, and of
where updates end, are off. Everything else ends it at once: a boundary of another thread or iterator, the end of an
epoch, an error, any other marker of ours. Then a REST marker records how many boundaries of each kind have passed; the
markers before it show their order. Fetches and updates are counted; how many backwards belong to them follows from the
period. The fetches of a fast evaluation rest in the same way, with the hook of the backward on.

Only the loop's own thread counts, reads the counts and reports them. Another thread may run between any two bytecodes
of that, for long: all that it does is to take the counts away, so that the loop's next boundary is marked, and ends
the rest.
"""

import os
import time
from _thread import get_ident, get_native_id
from typing import Any, List, Optional

from . import runtime
from .period import LONGEST, REPEATS, REPEATS_AGAIN, Period, find_fetches, find_period
from .ring.layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    BATCH,
    GC_PAUSE,
    LONGEST_REST,
    MARK,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    OPTIMIZER_MADE,
    POSITION,
    REST,
    TOKENS,
    pack_rest,
)
from .ring.no_writer import NoWriter
from .thread_end import when_thread_ends
from .torch_compat.rebinding import Rebound
from .torch_compat.step_hooks import StepHook

#: What a marker costs, in ns: measured with DataLoader and without, hooks on and off in one process.
MARKER_NS = 2000
#: Rests begin where markers cost more than this share of the loop's time, and end below the other.
_BEGIN_SHARE = 0.008
_END_SHARE = 0.005
#: What bursts may cost on average: their markers, and the begin and end of a rest, in ns, most of it cold code.
_BUDGET_SHARE = 0.001
_TURN_NS = 130_000
#: Periods of a burst.
BURST = 8
#: Steps rest for no longer than this.
_LONGEST_NS = 200_000_000
#: Fewer periods of rest than this are not worth its begin and end.
_SHORTEST = 4
#: Markers, of all threads, among which one that trains beside the resting loop finds its last update: first among
#: few (14 us), and where it is not there, among many (0.27 ms).
_NEAR, _REMEMBERED = 64, 1024
#: Updates until the next try where the loop was not fit for a rest, and where it was too slow: a try takes 60 us.
_RETRY_UPDATES = 64
_RETRY_SLOW_UPDATES = 256
#: Fetches without an update until the next try: gradients are rarely accumulated over so many batches.
RETRY_FETCHES = 64
#: Kinds of markers that do not belong to a loop, and so do not end its rest.
_OF_NO_LOOP = frozenset((BATCH, GC_PAUSE, MARK, OPTIMIZER_MADE, POSITION, TOKENS))


class Left:
    """What may still pass in one rest without a marker; only the thread of its loop counts it down."""

    __slots__ = ("fetches", "iterator", "period", "periods", "thread", "updates")

    def __init__(self, period: Period, periods: int, thread: int) -> None:
        self.period = period
        self.periods = periods
        self.iterator = period.iterator
        self.fetches = period.fetches * periods
        self.updates = period.updates * periods
        self.thread = thread


class Rest:
    """The rest that goes on, if any; ``left`` is ``_NOTHING_LEFT`` otherwise, and when another thread wants its end."""

    __slots__ = ("due", "fetches_again", "fetches_due", "left", "open", "unmarked", "writer")

    def __init__(self) -> None:
        self.left = _NOTHING_LEFT
        self.open: Optional[Left] = None  # until a REST marker has recorded what passed
        self.unmarked = 0  # the thread whose next update may follow a backward that nobody has marked
        self.due = _RETRY_UPDATES  # updates until the next try
        self.fetches_due = RETRY_FETCHES  # fetches without an update until one, or until a batch is measured
        self.fetches_again = RETRY_FETCHES  # from an update on
        self.leave_ring()

    def leave_ring(self) -> None:
        """Hold no ring any more."""
        self.writer: Any = NoWriter()


_NOTHING_LEFT = Left(Period(0, 0, -1, (), 0, 0, 0), 0, 0)
rest = Rest()
#: The hooks that are off in a rest: of backwards, and of where updates end.
backward_hooks: List[Rebound] = []
end_hooks: List[StepHook] = []
_is_resting_loop = False  # the loop is fast enough for rests
_latest: Optional[Period] = None  # of the latest rest
_owed = 0  # periods by which it was cut short
_thread = 0  # the only one whose loop rests: what others begin meanwhile is seen at their updates
_task = ""  # of that thread in /proc


def consider() -> None:
    """Begin a rest if the loop is fit for one; call after the marker of an optimizer's end, when ``rest.due`` is 0."""
    global _is_resting_loop, _latest, _owed
    rest.due = _RETRY_UPDATES
    _switch_hooks(on=True)  # even where an exception has cut the end of a rest short
    writer = _writer_of_loop()
    if writer is None:
        return
    if not _is_resting_loop and _is_slow(writer):
        rest.due = _RETRY_SLOW_UPDATES
        return
    writer.flush()
    # the known period first
    period = _latest and find_period(writer.latest(_latest.length * REPEATS + 1), _latest)
    period = period or find_period(writer.latest(LONGEST * REPEATS), _latest)
    if period is None:
        return
    _is_resting_loop = _share(period) > (_END_SHARE if _is_resting_loop else _BEGIN_SHARE)
    periods = _bounded(_owed or _periods(period, writer.drawn()), period)
    _owed = 0
    if _is_resting_loop and periods >= _SHORTEST:
        _latest = period
        _begin(writer, period, periods)


def consider_fetches() -> None:
    """Begin a rest in an evaluation that is fast; call after the marker of a fetch, when ``rest.fetches_due`` is 0.

    Only in the thread that trains: one that only fetches would keep that from resting.
    """
    rest.fetches_due = RETRY_FETCHES
    writer = _writer_of_loop() if _thread == get_ident() else None
    if writer is None:
        return
    writer.flush()
    period = find_fetches(writer.latest(2 * BURST), BURST - 1)
    periods = 0 if period is None else _bounded(_periods(period, writer.drawn()), period)
    if period is not None and _share(period) > _BEGIN_SHARE and periods >= _SHORTEST:
        _begin(writer, period, periods)


def _writer_of_loop() -> Any:
    """The ring of this process; None where this thread's loop cannot rest."""
    writer = runtime.writer()
    if writer is None or runtime.emit != writer.emit or runtime.has_clock() or not _is_loop_thread():
        return None
    return writer


def _is_slow(writer: Any) -> bool:
    """True if the latest markers cost too little for a rest, whatever they repeat: a search finds that in 150 us."""
    since_ns = time.monotonic_ns() - writer.first_of_latest_ns(LONGEST * REPEATS)
    return bool(_BEGIN_SHARE * since_ns >= LONGEST * REPEATS * MARKER_NS)


def _share(period: Period) -> float:
    """What the markers of a period cost of its time."""
    return period.length * MARKER_NS / max(1, period.duration_ns)


def _bounded(periods: int, period: Period) -> int:
    return min(periods, _LONGEST_NS // max(1, period.duration_ns))


def end(kind: int = MARK) -> None:
    """End the rest and mark what has passed; ``kind``: of the marker of the same thread that ends it."""
    global _owed
    left, rest.open = rest.open, None
    if left is None:
        return
    cut_short()
    period, periods = left.period, left.periods
    fetches = period.fetches * periods - left.fetches
    updates = period.updates * periods - left.updates
    ends = updates - 1 if updates and kind == OPTIMIZER_END else updates
    writer = rest.writer
    runtime.emit = writer.emit
    writer.hold()
    backwards, is_unmarked = period.backwards_with(fetches, updates, kind)
    rest.unmarked = left.thread if is_unmarked else 0
    writer.emit_of(left.thread, REST, pack_rest(fetches, backwards, updates, ends), period.length)
    if not period.updates:
        rest.fetches_due = BURST if fetches >= _SHORTEST else RETRY_FETCHES
        return
    whole = updates // period.updates
    _owed = periods - whole if whole >= _SHORTEST and periods - whole >= _SHORTEST else 0
    too_short = whole < _SHORTEST
    rest.due = period.updates * (REPEATS_AGAIN if _owed else BURST) if not too_short else _RETRY_UPDATES


def cut_short() -> None:
    """Have the loop's next boundary marked, whichever thread this is."""
    rest.left = _NOTHING_LEFT
    _switch_hooks(on=True)


def forget() -> None:
    """Forget the rest in a forked child: it is the parent's."""
    global _thread
    _thread = 0
    rest.open = None
    cut_short()


def _is_loop_thread() -> bool:
    """True if no other thread that still runs has rested before."""
    global _thread, _task
    own = get_ident()
    if _thread != own and (not _thread or not os.access(_task, os.F_OK)):
        when_thread_ends(_end_own)
        _thread, _task = own, "/proc/self/task/%d" % get_native_id()
    return _thread == own


def _end_own() -> None:
    """The thread ends: mark what it has counted before another thread has its number."""
    global _thread
    _thread = 0
    if rest.open is not None and rest.open.thread == get_ident():
        end()
    writer = runtime.writer()  # of this process: a forked child has its parent's threads' variables
    if writer is not None:
        writer.flush()


def _begin(writer: Any, period: Period, periods: int) -> None:
    left = Left(period, periods, get_ident())
    rest.writer = writer
    rest.open = left
    runtime.emit = wake
    if period.backwards:
        _switch_hooks(on=False)
    rest.left = left


def _switch_hooks(*, on: bool) -> None:
    for hook in backward_hooks:
        hook.on() if on else hook.off()
    for end_hook in end_hooks:
        end_hook.on() if on else end_hook.off()


def wake(kind: int, value: int = 0, flag: int = 0) -> None:
    """``runtime.emit`` in a rest."""
    if kind not in _OF_NO_LOOP:
        left = rest.open
        if left is None or left.thread == get_ident():
            end(kind)
        else:
            cut_short()
            if kind == OPTIMIZER_BEGIN and _has_passed_backward(value):
                rest.writer.emit(BACKWARD_BEGIN)
                rest.writer.emit(BACKWARD_END)
    rest.writer.emit(kind, value, flag)


def _has_passed_backward(optimizer: int) -> bool:
    """True if this thread, whose loop does not rest, has called backward while another's rest had its hook off.

    It has, if a backward was marked before the latest update by the same optimizer and none before this one.
    """
    rest.writer.flush()
    tid = get_native_id()
    for count in (_NEAR, _REMEMBERED):
        latest = rest.writer.latest(count)
        own = [(kind, value) for _, kind, _, marked, value in latest if marked == tid and kind not in _OF_NO_LOOP]
        if own and own[-1][0] == BACKWARD_END:
            return False
        updates = [at for at, marker in enumerate(own) if marker == (OPTIMIZER_BEGIN, optimizer)]
        if updates and updates[-1] > 0:
            return bool(own[updates[-1] - 1][0] == BACKWARD_END)
    return False


def _periods(period: Period, drawn: float) -> int:
    """How many periods to rest, of random length: side work every so many steps must not always fall into a rest."""
    burst_ns = BURST * period.length * MARKER_NS + _TURN_NS
    mean = burst_ns / (_BUDGET_SHARE * max(1, period.duration_ns)) - BURST
    return int(min(mean, LONGEST_REST * 2 / 3) * (0.5 + drawn))


def mark_end() -> None:
    """Have the end of the rest's last update marked: without a DataLoader a step begins there."""
    for hook in end_hooks:
        hook.on()


def mark_backward() -> None:
    """Mark the backward of a rest that was cut short, now that the update after it begins."""
    rest.unmarked = 0
    runtime.emit(BACKWARD_BEGIN)
    runtime.emit(BACKWARD_END)


runtime.end_rest = end
runtime.forget_rest = forget
