"""What the tests of the monitor give it to handle, and how they drive it."""

from typing import Any

from tests.session import records
from tests.waiting import until
from tuimon.monitor.monitor import Monitor
from tuimon.records import Header, Steps

HEADER = Header(
    t=0.5, pid=7, mode="run", command=["x"], host="h", wall_unix_s=0.0, interval_s=1.0, cpu_count=1, versions={}
)


def steps(t: float) -> Steps:
    return records.steps(t, {"backward": 10e-6}, count=5, first_index=max(int(t) - 1, 0) * 5, pid=7)


def begun(*arguments: Any, **options: Any) -> Monitor:
    """A monitor that has started."""
    monitor = Monitor(*arguments, **options)
    monitor.start()
    return monitor


def ticked_until(monitor: Monitor, condition: object) -> None:
    until(lambda: (monitor.tick(), condition())[1])  # type: ignore[operator]
