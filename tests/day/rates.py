"""What a day of training holds, and how much faster it passes here."""

from __future__ import annotations

from typing import NamedTuple

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
