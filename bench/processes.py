"""Processes under measurement: CPU time, memory, descendants, stopping and continuing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from typing import NamedTuple

import psutil


class Usage(NamedTuple):
    """CPU time of a process, and of its children that have ended and been waited for, in seconds."""

    own_s: float
    reaped_s: float


def usage(pid: int) -> Usage:
    """CPU time so far. Raises psutil.NoSuchProcess when the process is gone."""
    times = psutil.Process(pid).cpu_times()
    return Usage(times.user + times.system, times.children_user + times.children_system)


def rss_bytes(pid: int) -> int:
    """Resident memory now. Raises psutil.NoSuchProcess when the process is gone."""
    rss: int = psutil.Process(pid).memory_info().rss
    return rss


def command_line(pid: int) -> list[str]:
    """The process's argv; empty when it is gone or a zombie."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def descendants(pid: int) -> list[int]:
    """All descendants that are alive, parents before their children; none when the process is gone."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes of ours; those that have ended are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
