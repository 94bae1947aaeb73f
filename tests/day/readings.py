"""Memory, CPU time and the log's size, read once a second while the day passes; and how steeply they rise."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from bench import processes

MB = 1_000_000
#: Pairs of readings grow with the square of their number; more than these tell a slope no better.
_MAX_READINGS = 400


class Reading(NamedTuple):
    """One second. ``at_s``: real seconds since the start; MB are 10^6 bytes."""

    at_s: float
    monitor_mb: float
    training_mb: float | None  # rank 0's; None before it has begun
    monitor_cpu_s: float  # own and its ended py-spy children's
    log_mb: float
    monitor_files: int  # open handles
    monitor_threads: int
    training_files: int | None


def read(at_s: float, monitor: int, trainer: int | None, log: Path) -> Reading:
    """Raises psutil.NoSuchProcess when the monitor has ended."""
    usage, ours, theirs = processes.usage(monitor), psutil.Process(monitor), _numbers(trainer)
    return Reading(
        at_s,
        processes.rss_bytes(monitor) / MB,
        theirs[0],
        usage.own_s + usage.reaped_s,
        log.stat().st_size / MB if log.exists() else 0.0,
        ours.num_fds(),
        ours.num_threads(),
        theirs[1],
    )


def _numbers(pid: int | None) -> tuple[float, int] | tuple[None, None]:
    """Memory in MB and open files of the training; None when it is not there."""
    try:
        memory = 0 if pid is None else processes.rss_bytes(pid)
        return (memory / MB, psutil.Process(pid).num_fds()) if memory else (None, None)  # a zombie has none
    except psutil.Error:
        return None, None


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The median of the slopes of all pairs (Theil-Sen), which a few odd readings do not move; None of fewer than 8."""
    if len(points) < 8:
        return None
    every = -(-len(points) // _MAX_READINGS)
    x, y = np.array(points[::every], dtype=float).T
    first, second = np.triu_indices(len(x), k=1)
    run = x[second] - x[first]
    return float(np.median((y[second] - y[first])[run > 0] / run[run > 0]))


def second_half(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """What a process keeps once it has seen everything once is not growth: the first half is left out."""
    if not points:
        return []
    middle = (points[0][0] + points[-1][0]) / 2
    return [point for point in points if point[0] >= middle]


#: Simulated seconds in a real one: 24 h in 30 minutes.
SPEED = 48
#: Windows are of 0.1 s, the shortest that ``--interval`` takes: ten times as many as in the same time of a real run,
#: not 48 times. What costs by window is therefore judged by hours of 3,600 windows, what costs by event by SPEED.
INTERVAL_S = 0.1

RANKS = 2
WORKERS = 4


class Hourly(NamedTuple):
    """Events in an hour of the day that is simulated: our choice, a busy run's, not measured anywhere."""

    steps: int = 36_000  # of the main training: 10 a second
    epochs: int = 20  # each starts WORKERS workers anew, evaluates, and writes a checkpoint
    threads: int = 600  # that live for a moment; every tenth trains a few steps of its own
    programs: int = 60  # that the training runs and waits for; every tenth is Python
    restarts: int = 1  # of the second rank, by exec
    sampler_kills: int = 12  # a py-spy of the monitor dies
    gpu_faults: int = 4  # the driver loses the GPU, and finds it again; or answers late


def real_seconds(per_hour: float) -> float:
    """Real time from one such event to the next."""
    return 3600 / per_hour / SPEED


def simulated_hours(real_s: float) -> float:
    """Hours of the day that have passed after so many real seconds."""
    return real_s * SPEED / 3600


def window_hours(real_s: float) -> float:
    """Hours of 3,600 windows in so many real seconds."""
    return real_s / INTERVAL_S / 3600
