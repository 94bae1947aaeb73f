"""What ``py-spy record --format speedscope --threads`` writes: one profile a thread, one stack an instant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from tuimon.sources.stacks.frames import Place, bare_name
from tuimon.torch_code import is_backward_entry

_PROFILE_NAME = re.compile(r'^Thread (0x[0-9A-Fa-f]+|\d+)(?: "(.*)")?$', re.DOTALL)

#: So many looks at each stay in backward, and at each stretch between two, on average.
_DENSE = 3


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
    """One thread in a window. ``tid``: the OS id; before Python 3.11 py-spy tells the pthread id (see ``pthreads``)."""

    tid: int
    name: str
    stacks: Counter[tuple[Place, ...]]  # root first


@dataclass(frozen=True, slots=True)
class Samples:
    """What one window holds. ``instants``: how often the process was looked at."""

    threads: list[SampledThread]
    instants: int
    cycles: int | None = None  # times that the main thread was seen to enter backward; None: samples too far apart


def parse(speedscope: bytes, pid: int) -> Samples:
    """Read what ``py-spy record --format speedscope --threads`` wrote. Raises ValueError when it is something else."""
    try:
        file = _speedscope.decode(speedscope)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not a speedscope file: {error}") from error
    # the root of each stack is a line about the thread, told by its empty file name
    places = [Place(f.file, f.line or 0, bare_name(f.name)) if f.file else None for f in file.shared.frames]
    threads = [_thread(profile, places, pid, len(file.profiles) == 1) for profile in file.profiles]
    instants = max((len(profile.samples) for profile in file.profiles), default=0)
    main = next((p for p, t in zip(file.profiles, threads, strict=True) if t.tid == pid), None)
    cycles = _cycles(main.samples, places) if main else None
    return Samples(sorted(threads, key=lambda thread: thread.tid != pid), instants, cycles)


def _cycles(samples: Sequence[Sequence[int]], places: Sequence[Place | None]) -> int | None:
    """How often a thread was seen to enter backward.

    Looks come at random instants: a stretch that is seen three times on average escapes them in 5 of 100 cases, e**-3.
    With shorter stretches, inside or between, the count would be too low: None. Those at either end of the window were
    seen in part and count half.
    """
    marks = {i for i, place in enumerate(places) if place is not None and is_backward_entry(place.file, place.function)}
    inside = [not marks.isdisjoint(stack) for stack in samples]
    entries = sum(1 for before, now in pairwise(inside) if now and not before)
    leavings = sum(1 for before, now in pairwise(inside) if before and not now)
    if not inside:
        return None
    stays = entries + inside[0] - (inside[0] + inside[-1]) / 2
    absences = leavings + (not inside[0]) - ((not inside[0]) + (not inside[-1])) / 2
    if sum(inside) < _DENSE * stays or len(inside) - sum(inside) < _DENSE * absences:
        return None
    return entries


def _thread(profile: _Profile, places: Sequence[Place | None], pid: int, alone: bool) -> SampledThread:
    name = _PROFILE_NAME.match(profile.name)
    tid = int(name[1], 0) if name else 0
    label = (name[2] or "") if name else profile.name
    if name and name[1].startswith("0x") and (label == "MainThread" or alone):
        tid = pid  # a program without the threading module has no names of threads
    counts = Counter(map(tuple, profile.samples))
    stacks: Counter[tuple[Place, ...]] = Counter()
    for indices, count in counts.items():
        found = (places[i] for i in indices if 0 <= i < len(places))
        stacks[tuple(place for place in found if place is not None)] += count
    return SampledThread(tid, label, stacks)
