"""Parses the output of ``py-spy record --format speedscope --threads``: a profile per thread, a stack per sample."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tuimon.proc.ring_facts import RawFrame
from tuimon.torch_code import is_backward_entry, is_optimizer_step

_PROFILE_NAME = re.compile(r'^Thread (0x[0-9A-Fa-f]+|\d+)(?: "(.*)")?$', re.DOTALL)

#: No file has as many lines. Seen while a Lightning training was sampled: line 2,328,059,824 of a file "logger", and
#: line 0 of a file "value".
_MAX_LINES = 1 << 24
_NAMED_LIKE_FILE = re.compile(r"[./\\<]")
#: Cycles are counted if each stay in backward, and each absence between two, has this many samples on average.
_SAMPLES_PER_STAY = 3


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


class SampledThread(Struct, frozen=True):
    """One thread in a window. ``tid``: the OS id; before Python 3.11 py-spy names the pthread id (see ``pthreads``)."""

    tid: int
    name: str
    stacks: Counter[tuple[RawFrame, ...]]  # root first
    matters: bool = False  # the main thread, or one that enters backward

    @property
    def stack(self) -> tuple[RawFrame, ...]:
        """Its most frequent stack."""
        return max(self.stacks, key=self.stacks.__getitem__, default=())


class WindowSamples(Struct, frozen=True):
    """The samples of one window."""

    threads: list[SampledThread]  # the main one first
    instants: int  # how often the process was sampled
    cycles: int | None = None  # times that the training entered backward, or its update; None: samples too far apart


def parse_speedscope(speedscope: bytes, pid: int) -> WindowSamples:
    """Parse the output of ``py-spy record --format speedscope --threads``. Raises ValueError if it is none."""
    try:
        file = _speedscope.decode(speedscope)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"not a speedscope file: {error}") from error
    frames = [_frame(each) for each in file.shared.frames]
    threads = [_thread(profile, frames, pid, len(file.profiles) == 1) for profile in file.profiles]
    instants = max((len(profile.samples) for profile in file.profiles), default=0)
    inside = _inside_training(file.profiles, frames)
    threads = [
        replace(thread, matters=thread.tid == pid or any(own)) for thread, own in zip(threads, inside, strict=True)
    ]
    main = next((at for at, thread in enumerate(threads) if thread.tid == pid), None)
    cycles = None
    if main is not None:
        # the main thread, unless another one trains: what autograd runs in threads of its own has entered nothing
        at = main if any(inside[main]) else max(range(len(inside)), key=lambda at: sum(inside[at]))
        cycles = _cycles(inside[at])
    threads.sort(key=lambda thread: (thread.tid != pid, not thread.matters))
    return WindowSamples(threads, instants, cycles)


def _frame(frame: _Frame) -> RawFrame | None:
    """The frame; None for the root of each stack, which describes the thread, and for one read in freed memory.

    The callers of such a frame are right, but neither its line nor its names mean anything.
    """
    line = _valid_number(frame.line or 0)
    if not frame.file or line > _MAX_LINES or (not line and _NAMED_LIKE_FILE.search(frame.file) is None):
        return None
    return RawFrame(frame.file, line, bare_name(frame.name))


def bare_name(function: str) -> str:
    """``Thread.run`` -> ``run``: py-spy qualifies names on some versions of Python only, markers never."""
    return function.rpartition(".")[2] or function


def _valid_number(number: int) -> int:
    """A line or a thread id; 0 for a number that can be neither."""
    return number if 0 <= number < 1 << 63 else 0


def _inside_training(profiles: Sequence[_Profile], frames: Sequence[RawFrame | None]) -> list[list[bool]]:
    """For each thread and sample, True if the thread is in backward; if no sample is, True if it is in an update.

    A backward of a hundredth of the step may be in no sample of a window, while the update is in some.
    """
    for enters in (is_backward_entry, is_optimizer_step):
        entry = {i for i, frame in enumerate(frames) if frame is not None and enters(frame.file, frame.function)}
        inside = [[not entry.isdisjoint(stack) for stack in profile.samples] for profile in profiles]
        if any(map(any, inside)):
            break
    return inside


def _cycles(inside: Sequence[bool]) -> int | None:
    """How often a thread was seen to enter backward, or to begin an update.

    A run of samples inside is a stay, a run outside an absence. Samples come at random instants, so a stay that has
    three of them on average has none in 5 of 100 cases (e**-3). If stays or absences are shorter than that, the count
    would be too low, and None is returned. A stay or absence at either end of the window was sampled in part and counts
    half.

    With ``.`` outside and ``B`` inside, ``...BBB...BBBB...`` is 2: 7 samples in 2 stays, 9 in one whole absence and two
    halves. ``.B.B.B.`` is None: one sample for each stay.
    """
    entries = sum(1 for before, now in pairwise(inside) if now and not before)
    leavings = sum(1 for before, now in pairwise(inside) if before and not now)
    if not inside:
        return None
    stays = entries + inside[0] - (inside[0] + inside[-1]) / 2
    absences = leavings + (not inside[0]) - ((not inside[0]) + (not inside[-1])) / 2
    if sum(inside) < _SAMPLES_PER_STAY * stays or len(inside) - sum(inside) < _SAMPLES_PER_STAY * absences:
        return None
    return entries


def _thread(profile: _Profile, frames: Sequence[RawFrame | None], pid: int, alone: bool) -> SampledThread:
    name = _PROFILE_NAME.match(profile.name)
    tid = _valid_number(int(name[1], 0)) if name else 0
    label = (name[2] or "") if name else profile.name
    if name and name[1].startswith("0x") and (label == "MainThread" or alone):
        tid = pid  # a program without the threading module names no thread
    counts = Counter(map(tuple, profile.samples))
    stacks: Counter[tuple[RawFrame, ...]] = Counter()
    for indices, count in counts.items():
        known = (frames[i] for i in indices if 0 <= i < len(frames))
        stacks[tuple(frame for frame in known if frame is not None)] += count
    return SampledThread(tid, label, stacks)
