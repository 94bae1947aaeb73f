"""What ``py-spy record --format speedscope --threads`` writes: one profile a thread, one stack an instant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tuimon.sources.frames import Place, bare_name

_PROFILE_NAME = re.compile(r'^Thread (0x[0-9A-Fa-f]+|\d+)(?: "(.*)")?$', re.DOTALL)


class _Frame(msgspec.Struct):
    name: str
    file: str | None = None
    line: int | None = None


class _Shared(msgspec.Struct):
    frames: list[_Frame]


class _Profile(msgspec.Struct):
    name: str
    samples: list[list[int]]


class _Speedscope(msgspec.Struct):
    profiles: list[_Profile]
    shared: _Shared


_speedscope = msgspec.json.Decoder(_Speedscope)


@dataclass(frozen=True, slots=True)
class SampledThread:
    """One thread in a window. ``tid`` is the OS id; on Python <= 3.10 py-spy may only know the pthread id."""

    tid: int
    name: str
    stacks: Counter[tuple[Place, ...]]  # root first


@dataclass(frozen=True, slots=True)
class Samples:
    """What one window holds. ``instants``: how often the process was looked at."""

    threads: list[SampledThread]
    instants: int


def parse(speedscope: bytes, pid: int) -> Samples:
    """Read what ``py-spy record --format speedscope --threads`` wrote. Raises ValueError when it is something else."""
    try:
        file = _speedscope.decode(speedscope)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not a speedscope file: {error}") from error
    # the root of each stack is a line about the thread, told by its empty file name
    places = [Place(f.file, f.line or 0, bare_name(f.name)) if f.file else None for f in file.shared.frames]
    threads = [_thread(profile, places, pid) for profile in file.profiles]
    instants = max((len(profile.samples) for profile in file.profiles), default=0)
    return Samples(sorted(threads, key=lambda thread: thread.tid != pid), instants)


def _thread(profile: _Profile, places: Sequence[Place | None], pid: int) -> SampledThread:
    name = _PROFILE_NAME.match(profile.name)
    tid = int(name[1], 0) if name else 0
    label = (name[2] or "") if name else profile.name
    if label == "MainThread" and name and name[1].startswith("0x"):
        tid = pid
    counts = Counter(map(tuple, profile.samples))
    stacks: Counter[tuple[Place, ...]] = Counter()
    for indices, count in counts.items():
        found = (places[i] for i in indices if 0 <= i < len(places))
        stacks[tuple(place for place in found if place is not None)] += count
    return SampledThread(tid, label, stacks)
