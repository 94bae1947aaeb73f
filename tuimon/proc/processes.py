"""Whole processes, read with psutil: for readers that come once a second or less."""

from __future__ import annotations

import os
from functools import cache

import psutil

from tuimon.proc import procfs

#: A command line is shortened to this many characters: records are bounded.
_COMMAND_CHARS = 2000
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def is_alive(pid: int, start_ticks: int | None) -> bool:
    """Whether that very process, not a later one of the same pid, exists now and is no zombie."""
    try:
        status = psutil.Process(pid).status()
    except psutil.Error:
        return False
    return status not in _ENDED and start_ticks in (None, procfs.start_ticks(pid))


def command_line(pid: int) -> list[str]:
    """The arguments; empty for kernel threads, zombies and processes that are gone."""
    try:
        return as_text(psutil.Process(pid).cmdline())
    except psutil.Error:
        return []


def as_text(words: list[str]) -> list[str]:
    """Arguments as text that can be encoded, without the padding that setproctitle leaves at the end."""
    last = max((i for i, word in enumerate(words) if word), default=-1)
    return [os.fsencode(word).decode("utf-8", "replace") for word in words[: last + 1]]


def shortened(words: list[str]) -> list[str]:
    """The arguments, cut to 2,000 characters in all."""
    out: list[str] = []
    room = _COMMAND_CHARS
    for text in words:
        out.append(text[:room])
        room -= len(text)
        if room <= 0:
            break
    return out


def environment(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when it may not be read, and during an exec."""
    try:
        return psutil.Process(pid).environ()
    except psutil.Error:
        return {}


def program_name(pid: int) -> str:
    """Base name of the program a process runs; "" when that may not be known."""
    try:
        return os.path.basename(psutil.Process(pid).exe())
    except psutil.Error:
        return ""


def start_unix_s(start_ticks: int) -> float:
    """When a process started, in seconds since the epoch, to 10 ms."""
    return _boot_unix_s() + start_ticks / procfs.TICKS_PER_S


@cache
def _boot_unix_s() -> float:
    """Read once: /proc/stat takes a millisecond on a machine of many cores."""
    return psutil.boot_time()
