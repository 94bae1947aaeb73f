"""What the tests of the monitor give it to handle, and how they drive it."""

from __future__ import annotations

from tests.waiting import until
from tuimon.monitor.monitor import Monitor
from tuimon.records import Header, PhaseTime, Steps

HEADER = Header(
    t=0.5, pid=7, mode="run", command=["x"], host="h", wall_unix_s=0.0, interval_s=1.0, cpu_count=1, versions={}
)


def steps(t: float, count: int = 5) -> Steps:
    return Steps(
        t=t,
        pid=7,
        window_s=1.0,
        count=count,
        first_index=max(int(t) - 1, 0) * count,
        total_ns=count * 10,
        phases=[PhaseTime("backward", count * 10)],
        backwards=count,
        updates=count,
    )


def ticked_until(monitor: Monitor, condition: object) -> None:
    until(lambda: (monitor.tick(), condition())[1])  # type: ignore[operator]
