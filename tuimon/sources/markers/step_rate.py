"""How many steps a second a process makes now, from what its ring holds: for a list, without following it."""

from __future__ import annotations

import time
from typing import NamedTuple

from tuimon.agent.ring.paths import ring_path
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.records import Steps
from tuimon.sources.markers.follower import RingFollower

#: Over so many windows of a second; of a slower loop over all that the ring holds of the last minute.
_WINDOWS = 10


class StepRate(NamedTuple):
    """The steps that a ring shows."""

    per_s: float | None  # now; None if none has ended in the last minute
    has_stepped: bool  # a step, or a part of one, as far back as the ring goes


def steps_of(pid: int) -> StepRate | None:
    """The steps of a live process; None without a ring."""
    try:
        reader = RingReader(ring_path(pid))
    except (OSError, RingError, ValueError):
        return None
    try:
        return steps_in(reader, time.monotonic_ns())
    except OSError:  # its process has ended meanwhile
        return None
    finally:
        reader.close()


def steps_in(reader: RingReader, now_ns: int) -> StepRate:
    """Whole steps a second, and whether there were any. Takes about 0.04 s for a second of a fast loop."""
    follower = RingFollower(reader, 1.0, now_ns)
    windows = [record for record in follower.windows(now_ns) if isinstance(record, Steps)]
    for some in (windows[-_WINDOWS:], windows):
        if steps := sum(window.count for window in some):
            return StepRate(steps / sum(window.window_s for window in some), has_stepped=True)
    return StepRate(None, has_stepped=bool(follower.steps) or follower.trains)
