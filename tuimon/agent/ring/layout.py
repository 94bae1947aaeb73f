"""Offsets, structs, kinds of markers and packed values of a ring file; see the package for a diagram.

An event of torch.compile's work is one text, the name of a marker: packed and unpacked here as well.
"""

import struct
from typing import NamedTuple, Optional, Tuple

MAGIC = b"TUIMON\x00\x01"
VERSION = 5
META_OFFSET = 4096
META_BYTES = 8192
NAMES_OFFSET = META_OFFSET + META_BYTES
NAMES_BYTES = 128 * 1024
#: See loading_slots.py. Starts a page, so that workers can map it alone.
LOADING_OFFSET = NAMES_OFFSET + NAMES_BYTES
LOADING_BYTES = 32 * 1024
SLOTS_OFFSET = LOADING_OFFSET + LOADING_BYTES
SLOT_BYTES = 32
#: 2 MiB of slots: about 2 s of a 0.25 ms step with one user range.
SLOT_COUNT = 65536

HEADER = struct.Struct("<8sIIIQQ")  # magic, version, slot_count, pid, start_ticks, created_ns
NAME_COUNT_OFFSET = 64
META_LENGTH_OFFSET = 72
#: In a fast loop markers wait in the writer, at least until this time (monotonic ns). 0: they are written immediately.
HELD_UNTIL_OFFSET = 80
#: Not 0: the writer has written its last marker, and removes the file, as its process ends or its hooks are withdrawn.
CLOSED_OFFSET = 88
AT_END, WITHDRAWN = 1, 2
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
U16 = struct.Struct("<H")
SLOT_WORDS = SLOT_BYTES // 8
#: The reader counts this many slots before the writer as overwritten, since this many threads may be writing at the
#: same time.
SLOT_MARGIN = 8
#: Separates the parts of a range's interned name: name, file, function, line.
PLACE_SEPARATOR = "\x1f"

# Kinds of markers. Begin and end of a pair differ in the lowest bit.
FETCH_BEGIN = 2  # value: id of the iterator; flag: ready batches + 1, 0 unknown; or FETCHED_IN_GAP
FETCH_END = 3  # value: id of the iterator; flag: 0 or an event's number: a batch; EXHAUSTED, FETCH_FAILED: none
BACKWARD_BEGIN = 4  # value: RETURNED if the gradients are returned, and no parameter's is accumulated
BACKWARD_END = 5  # value: as of BACKWARD_BEGIN
OPTIMIZER_BEGIN = 6  # value: id of the optimizer (or GradScaler); a step that raises has no end
OPTIMIZER_END = 7
RANGE_PUSH = 8  # value: name id; per-thread nesting
RANGE_POP = 9  # value: name id of the place, without a name, if a call ended it; 0: the end of a block
STEP = 12  # tuimon.step(): a step ends here
MARK = 14  # value: name id
WORKER = 16  # an iterator has this worker; value: its pid, flag: name id of its loader's facts
GPU_TIME = 18  # a boundary's event was found done; flag: its number; value: ``pack_gpu_time``
GPU_ANCHOR = 20  # GPU_TIME counts from the event with this number (flag) from now on; value: ``pack_gpu_anchor``
TORCH_MEMORY = 22  # torch's CUDA allocator; flag: device << 4 | one of MEMORY_*; value: bytes or a count
TENSORS = 24  # of the batch that the next BATCH measures; flag: as there, value: ``pack_pair``, with KiB of storage
BATCH = 26  # a batch was measured; flag: name id of its loader's facts, value: ``pack_batch``
TOKENS = 28  # of the batch that the next BATCH measures; flag: as there, value: ``pack_pair``, positions and padding
POSITION = 30  # batches that an epoch has given, and has; flag: name id of its loader's facts, value: ``pack_pair``
ITER_BEGIN = (
    32  # iter(loader): its workers are started, or restarted; value: id of the iterator if they are ended instead
)
ITER_END = 33  # value: id of the iterator, 0 if there is none
GAP_BEGIN = 36  # boundaries are only counted from this one on; value: its kind
GAP_END = 37  # ... until here; value: ``pack_gap``, flag: where it ended, as GAP_BEGIN's value, or one of GAP_IN_STEP
OPTIMIZER_MADE = 42  # the program has a torch optimizer: the backward before may be one of many until its step
STEP_SIZE = 48  # how much the step that ends next holds, as the program says; flag: STEP_SAMPLES or STEP_TOKENS
PROFILER_ON = 44  # a profiler of ours slows this thread from now on; flag: FOR_TRACE or 0
PROFILER_OFF = 45  # it is off; the thread's open step was held up by it as well
LOOP_LEFT = 46  # the thread has left its loop, and is in none until its next boundary: a notebook's cell has run
COMPILER = 50  # torch.compile's work (torch_compat/compilations.py); flag: name id of the event, value: ns or a count
GC_PAUSE = 40  # the garbage collector stopped all threads until now; flag: generation, value: duration in ns

#: After this many updates without a fetch, or a call of ``tuimon.step()``, a loop's steps no longer begin with it.
BARE_UPDATES = 64
#: Value of BACKWARD_*: ``autograd.grad``.
RETURNED = 1
#: Flags of STEP_SIZE: what its value counts.
STEP_SAMPLES, STEP_TOKENS = 1, 2
#: Flags of GAP_END within a step: what came last in it. A fetch, whose batch no backward has used; a backward; an
#: optimizer step. The marker may be written long after its time: nothing shows sooner that the gap has ended.
GAP_IN_STEP = GAP_AFTER_FETCH, GAP_AFTER_BACKWARD, GAP_AFTER_UPDATE = FETCH_END, BACKWARD_END, OPTIMIZER_END
#: Flag of FETCH_BEGIN: the fetch has begun before this marker, in a gap. No number of ready batches.
FETCHED_IN_GAP = 0xFFFF
#: Flag of PROFILER_ON: the step that begins here is the first of those that a trace holds.
FOR_TRACE = 1

#: Kinds that cut the loop of a thread into stretches.
BOUNDARIES = frozenset(
    (
        FETCH_BEGIN,
        FETCH_END,
        BACKWARD_BEGIN,
        BACKWARD_END,
        OPTIMIZER_BEGIN,
        OPTIMIZER_END,
        STEP,
        ITER_BEGIN,
        ITER_END,
    )
)
#: Kinds that report of a loader; the flag is the name id of its facts.
LOADER_KINDS = frozenset((WORKER, TENSORS, BATCH, TOKENS, POSITION))
#: Kinds that belong to no loop of their thread, and so do not end its gap.
NO_LOOP_KINDS = LOADER_KINDS | {COMPILER, GC_PAUSE, MARK, OPTIMIZER_MADE, STEP_SIZE}
#: Kinds of what stands in for boundaries that are only counted.
GAPS = frozenset((GAP_BEGIN, GAP_END))

# Flags of BACKWARD_*, OPTIMIZER_* and FETCH_END: the number of the boundary's CUDA event, 0 without, or one of these.
EXHAUSTED = 1  # FETCH_END only: StopIteration
FETCH_FAILED = 2  # FETCH_END only: another exception
#: FETCH_END's flags of a fetch that brought no batch.
NO_BATCH = frozenset((EXHAUSTED, FETCH_FAILED))
#: Numbers of events run from here to LAST_EVENT and begin again.
FIRST_EVENT = 3
LAST_EVENT = 0xFFFF

MEMORY_ALLOCATED, MEMORY_RESERVED, MEMORY_RETRIES, MEMORY_OOMS, MEMORY_FREES, MEMORY_PINNED, MEMORY_PEAK = range(7)

#: An iterator's id: its number in this many low bits, above them the name id of its loader's facts (0: unknown).
LOADER_SHIFT = 16


def has_event(flag: int) -> bool:
    """True if a boundary's flag is the number of its CUDA event."""
    return flag >= FIRST_EVENT


_ELAPSED_BITS = 40
_ELAPSED_MASK = (1 << _ELAPSED_BITS) - 1
_GAP_BITS = 23
_GAP_MASK = (1 << _GAP_BITS) - 1
#: The longest gap of an EventTime: 8.4 s. A longer one is None, as it bounds nothing.
MAX_GAP_US = _GAP_MASK - 1
_IDLE_BIT = 63
_ANCHOR_BITS = 48
_ANCHOR_MASK = (1 << _ANCHOR_BITS) - 1


class EventTime(NamedTuple):
    """The value of a GPU_TIME marker.

    ``elapsed_ns``: on the GPU's clock, since the anchor. ``stream_idle``: just before the event was recorded, a query
    found its stream idle; ``gap_us`` is then how long recording took: the GPU reached the event in that time, or right
    after. Otherwise the event was last found pending ``gap_us`` before it was found done. None: never polled before, or
    longer ago than MAX_GAP_US.
    """

    elapsed_ns: int
    gap_us: Optional[int]
    stream_idle: bool


def pack_gpu_time(elapsed_ns: int, gap_us: Optional[int], stream_idle: bool) -> int:
    """An EventTime as one 64-bit value; ``elapsed_ns`` is at most 18 minutes, ``gap_us`` at most 8 s."""
    gap = _GAP_MASK if gap_us is None else min(gap_us, MAX_GAP_US)
    elapsed = min(max(0, elapsed_ns), _ELAPSED_MASK)
    return elapsed | gap << _ELAPSED_BITS | (1 << _IDLE_BIT if stream_idle else 0)


def unpack_gpu_time(value: int) -> EventTime:
    """The EventTime of a GPU_TIME marker's value."""
    gap = value >> _ELAPSED_BITS & _GAP_MASK
    return EventTime(value & _ELAPSED_MASK, None if gap == _GAP_MASK else gap, bool(value >> _IDLE_BIT))


def pack_gpu_anchor(device: int, elapsed_ns: Optional[int]) -> int:
    """A GPU_ANCHOR marker's value; ``elapsed_ns`` since the previous anchor, None if a new count begins."""
    return device << _ANCHOR_BITS | (_ANCHOR_MASK if elapsed_ns is None else min(max(0, elapsed_ns), _ANCHOR_MASK - 1))


def unpack_gpu_anchor(value: int) -> Tuple[int, Optional[int]]:
    """Device, and time since the previous anchor; None if a new count begins."""
    elapsed_ns = value & _ANCHOR_MASK
    return value >> _ANCHOR_BITS, None if elapsed_ns == _ANCHOR_MASK else elapsed_ns


class Batch(NamedTuple):
    """The value of a BATCH marker: the tensors of one batch. None: unknown."""

    size_bytes: int
    samples: Optional[int]  # rows of the first tensor
    is_on_cpu: bool  # all of them
    is_pinned: Optional[bool]  # all of those on the CPU


_BYTES_BITS = 40
_BYTES_MASK = (1 << _BYTES_BITS) - 1
_SAMPLES_BITS = 20
_SAMPLES_MASK = (1 << _SAMPLES_BITS) - 1
_PINNED = (None, False, True)


def pack_batch(size_bytes: int, samples: Optional[int], is_on_cpu: bool, is_pinned: Optional[bool]) -> Optional[int]:
    """A Batch as one 64-bit value; None from 1 TiB on. From a million samples on their number is unknown."""
    if not 0 <= size_bytes <= _BYTES_MASK:
        return None
    rows = _SAMPLES_MASK if samples is None else min(samples, _SAMPLES_MASK)
    rest = int(is_on_cpu) | _PINNED.index(is_pinned) << 1
    return size_bytes | rows << _BYTES_BITS | rest << _BYTES_BITS + _SAMPLES_BITS


def unpack_batch(value: int) -> Optional[Batch]:
    """The Batch of a BATCH marker's value; None if it is damaged."""
    rows, rest = value >> _BYTES_BITS & _SAMPLES_MASK, value >> _BYTES_BITS + _SAMPLES_BITS
    if rest >> 1 >= len(_PINNED):
        return None
    return Batch(value & _BYTES_MASK, None if rows == _SAMPLES_MASK else rows, bool(rest & 1), _PINNED[rest >> 1])


_HALF_BITS = 32
_HALF_MASK = (1 << _HALF_BITS) - 1


def pack_pair(low: int, high: Optional[int]) -> Optional[int]:
    """Two counts as one 64-bit value; None if ``low`` does not fit. ``high`` may be unknown: None."""
    if not 0 <= low <= _HALF_MASK:
        return None
    return low | ((high + 1) << _HALF_BITS if high is not None and 0 <= high < _HALF_MASK else 0)


def unpack_pair(value: int) -> Tuple[int, Optional[int]]:
    """The two counts: batches so far and in all of an epoch (POSITION), or positions and padding (TOKENS)."""
    high = value >> _HALF_BITS & _HALF_MASK
    return value & _HALF_MASK, high - 1 if high else None


class Passed(NamedTuple):
    """The value of a GAP_END marker: how many fetches, backwards, updates and steps the gap had.

    An update is a run of optimizer steps. ``steps``: those that a fetch, or ``tuimon.step()``, has ended.
    """

    fetches: int
    backwards: int
    updates: int
    steps: int


def pack_gap(*counts: int) -> int:
    """A Passed as one 64-bit value; each number is at most 65535."""
    fetches, backwards, updates, steps = (min(count, 0xFFFF) for count in counts)
    return fetches | backwards << 16 | updates << 32 | steps << 48


def unpack_gap(value: int) -> Passed:
    """The Passed of a GAP_END marker's value."""
    return Passed(value & 0xFFFF, value >> 16 & 0xFFFF, value >> 32 & 0xFFFF, value >> 48 & 0xFFFF)


class Marker(NamedTuple):
    """One slot of the ring: ``time_ns`` by ``time.monotonic_ns()``, ``tid`` the OS thread id."""

    time_ns: int
    kind: int
    flag: int
    tid: int
    value: int


#: Kinds of events; COMPILED, RECOMPILED and BACKWARD have a time, the others a count.
COMPILED, RECOMPILED, BACKWARD = "compiled", "recompiled", "backward"
GRAPH_BREAK, LIMIT, NO_CUDA_GRAPHS = "graph_break", "limit", "no_cuda_graphs"

Code = Tuple[str, int, str]
NO_CODE: Code = ("", 0, "")

_CHARACTERS = 160


class Event(NamedTuple):
    """An event; ``code``: file, line and function, of the first compiled line, or of the break."""

    what: str
    value: int  # ns, or how many
    code: Code
    reason: str = ""
    guarded: str = ""  # the line that the failed guard is for


def packed(what: str, code: Code, reason: Tuple[str, str]) -> str:
    """The event as one string, of bounded length."""
    file, line, function = code
    parts = [what, file[-2 * _CHARACTERS :], str(line), *(each[:_CHARACTERS] for each in (function, *reason))]
    return PLACE_SEPARATOR.join(part.replace(PLACE_SEPARATOR, "?") for part in parts)


def unpacked(text: str) -> Optional[Event]:
    """The event of a marker's name, without its value; None if it is damaged."""
    parts = text.split(PLACE_SEPARATOR)
    if len(parts) != 6 or not parts[2].isdecimal():
        return None
    return Event(parts[0], 0, (parts[1], int(parts[2]), parts[3]), parts[4], parts[5])
