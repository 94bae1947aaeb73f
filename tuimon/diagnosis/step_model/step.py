"""The parameters of a step: what the training thread does, who makes its batches, on how many cores, and its GPU."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

#: The place in a step of the wait for the GPU: before launches, after them, or after the side work.
Wait = Literal["no", "first", "launched", "last"]


class Step(Struct, frozen=True):
    """One step of a loop; times in ms, or in any other unit where no time is known.

    Running work takes longer where more wants to run than there are cores; waiting (for a disk, the network, a device)
    does not. Without workers the training thread makes its batches itself, and nothing is handed over.
    """

    own_ms: float  # of the training thread, without its fetches
    own_running: float  # share of that on a core
    own_threads: float  # cores that it uses then
    fetches: int  # batches a step
    hand_over_ms: float  # what a batch from a worker costs the training thread, though it lies ready
    starts_ms: float  # starting and ending the workers of an epoch, per step; nobody makes batches meanwhile
    workers: int
    prefetch: int  # batches that a worker makes ahead
    batch_ms: float  # making one
    batch_running: float  # share of that on a core
    cores: float
    burst_ms: float = 0.0  # of ``own_ms``: what comes once every ``burst_every`` steps, then so many times as long
    burst_every: int = 1
    side_ms: float = 0.0  # of ``own_ms``: after all is launched; only known where there is a GPU
    gpu_ms: float = 0.0  # what the GPU computes; 0 without one
    waits: Wait = "no"
    drawing_ms: float = 0.0  # drawing the indices of a batch, which the training thread does whoever makes the batch
    coupling: float = 1.0  # exponent, per thread after the first, of the share of time in which each has a core
    held_ms: float = 0.0  # waiting for the next batch in order while workers have made later ones and idle
    evaluation_ms: float = 0.0  # its part of what lies between steps; nobody makes batches for them meanwhile
