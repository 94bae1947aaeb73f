"""The CPU's waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuimon.trace.events import Events, Kind, Stretch
from tuimon.trace.nesting import Nesting

#: A copy from pageable memory takes at most this long on the CPU by itself, to be staged: 12 to 26 us were recorded.
_STAGING_NS = 20_000


def is_sync(name: str) -> bool:
    """True if a runtime call waits until the GPU has done what was queued."""
    return "Synchronize" in name or name in ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")


class CpuWait(NamedTuple):
    """A call that waited."""

    call: int  # event
    waited_ns: int


def cpu_waits(events: Events, nesting: Nesting, whole: Stretch) -> list[CpuWait]:
    """The waits that began in a stretch, of the threads with operators: the training thread and backward's.

    A copy and the synchronisation after it in the same operator are one wait, under the copy: ``.cpu()`` makes both.
    """
    threads = {events.track[i] for i in range(len(events)) if events.kind[i] == Kind.OPERATOR}
    found: list[CpuWait] = []
    latest: dict[int, int] = {}  # of each thread: its latest wait in ``found``
    for call, waited_ns in _calls(events, whole):
        track = events.track[call]
        if track not in threads:
            continue
        before = found[latest[track]] if track in latest else None
        if before is not None and _is_end_of(before.call, call, events, nesting):
            found[latest[track]] = before._replace(waited_ns=before.waited_ns + waited_ns)
        else:
            latest[track] = len(found)
            found.append(CpuWait(call, waited_ns))
    return found


def _is_end_of(copy: int, call: int, events: Events, nesting: Nesting) -> bool:
    """True if a call synchronises with the copy before it."""
    is_pair = is_sync(events.name_of(call)) and not is_sync(events.name_of(copy))
    return is_pair and nesting.operator[call] == nesting.operator[copy] >= 0


def _calls(events: Events, whole: Stretch) -> Iterator[tuple[int, int]]:
    """The calls of all threads that waited, and for how long (ns)."""
    pageable = {
        events.correlation[i]: events.end_ns[i]
        for i in range(len(events))
        if events.kind[i] == Kind.MEMCPY and events.correlation[i] and "Pageable" in events.name_of(i)
    }
    for i in events.begun_in(whole):
        if events.kind[i] != Kind.RUNTIME:
            continue
        length_ns = events.length_ns(i)
        copied_ns = pageable.get(events.correlation[i])
        if is_sync(events.name_of(i)) or (copied_ns is not None and events.end_ns[i] >= copied_ns):
            yield i, length_ns
        elif copied_ns is not None and length_ns > _STAGING_NS:
            yield i, length_ns - _STAGING_NS
