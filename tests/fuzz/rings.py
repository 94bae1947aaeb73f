"""Damaged rings, read by the monitor's side."""

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from tests.fuzz.hostile import hostile_text
from tuimon.agent.control import orders
from tuimon.agent.control.orders import Task
from tuimon.agent.ring import control_words, layout
from tuimon.agent.ring.loading_slots import SLOT as LOADING_SLOT
from tuimon.agent.ring.reader import RingError, RingReader
from tuimon.proc.ring_facts import ring_facts
from tuimon.records import Process, Record
from tuimon.sources.control_channel import Channel, ControlError
from tuimon.sources.markers.follower import RingFollower

_SLOT = layout.struct.Struct("<QQHHIQ")
_EXTREMES = (0, 1, 2, 7, 2**16, 2**31, 2**32 - 1, 2**40, 2**48 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_KINDS = (*sorted(layout.BOUNDARIES), layout.RANGE_PUSH, layout.RANGE_POP, layout.MARK, layout.WORKER, layout.GPU_TIME,
          layout.GPU_ANCHOR, layout.TORCH_MEMORY, layout.GC_PAUSE,
          layout.BATCH, layout.TENSORS, layout.TOKENS, layout.POSITION, layout.STEP_SIZE)  # fmt: skip
_MS = 1_000_000
_CONTROL_END = control_words.CONTROL_OFFSET + control_words.CONTROL_BYTES


def damaged_ring(path: str, rng: random.Random) -> None:
    """Write a ring, whole or damaged, of few slots or of many."""
    slots = rng.choice((1, 2, 3, 7, 8, 9, 15, 16, 64, 64, 256, 1024, 1024))
    data = bytearray(_ring(slots, rng))
    for _ in range(rng.choice((0, 1, 1, 2, 4, 16))):
        _damage(data, slots, rng)
    with open(path, "wb", opener=partial(os.open, mode=0o600)) as file:
        file.write(data)


def read_ring(path: str, rng: random.Random) -> list[Record]:
    """Everything that the monitor makes of the file, which is damaged once more between two reads."""
    try:
        reader = RingReader(path)
    except (RingError, OSError):
        return []
    records: list[Record] = []
    try:
        give_orders(path, rng)
        now_ns = time.monotonic_ns()
        facts = ring_facts(reader.meta())
        records.append(
            Process(
                t=now_ns / 1e9,
                pid=4242,
                ppid=1,
                start_unix_s=1.7e9,
                command=["python"],
                role="trainer",
                markers=True,
                **facts.of_process,
            )
        )
        follower = RingFollower(reader, 1.0, now_ns)
        for second in range(1, 4):
            records += follower.windows(now_ns + second * 1_000 * _MS)
            with open(path, "r+b") as file:
                data = bytearray(file.read())
                _damage(data, max(1, (len(data) - layout.SLOTS_OFFSET) // layout.SLOT_BYTES), rng)
                file.seek(0)
                file.write(data[: os.fstat(file.fileno()).st_size])
        records += follower.last(now_ns + 5_000 * _MS)
    finally:
        with suppress(BufferError):  # a hang was cut off in the middle of a read
            reader.close()
    return records


def give_orders(path: str, rng: random.Random) -> None:
    """Give orders through the damaged words, and have an agent whose ring has them attend to what it finds there."""
    with suppress(ControlError, RingError), Channel(path) as channel:
        for command in control_words.Command:
            with suppress(ControlError):
                request = channel.order(command, rng.choice(_EXTREMES))
                for _ in range(3):
                    request.poll()
                    _attend(path, rng)
                request.cancel()
                request.result()


def _attend(path: str, rng: random.Random) -> None:
    """What the hook does in a training; no command is carried out: here is nothing to withdraw."""
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        words = memoryview(data)[control_words.CONTROL_OFFSET : _CONTROL_END].cast("Q")
        orders.orders.words, orders.orders.name_id = words, lambda text: 1
        orders.orders.bell = words[control_words.BELL_WORD : control_words.BELL_WORD + 1]
        orders.orders.heard = orders.orders.rung = rng.choice(_EXTREMES)
        was = orders.begin_of
        orders.begin_of = lambda command: _Echo
        try:
            orders.attend()
        finally:
            orders.begin_of = was
            orders.forget()
        file.seek(0)
        file.write(data)


class _Echo(orders.Work):
    """A command that says what it was asked for."""

    def __init__(self, task: Task) -> None:
        self.task = task
        task.needs_steps = True

    def step(self) -> None:
        self.task.report(self.task.argument)

    end = step


def _ring(slots: int, rng: random.Random) -> bytes:
    start_ns = time.monotonic_ns() - slots * 2 * _MS
    data = bytearray(layout.SLOTS_OFFSET + slots * layout.SLOT_BYTES)
    header = layout.HEADER.pack(layout.MAGIC, layout.VERSION, slots, os.getpid(), 12345, start_ns)
    data[: len(header)] = header
    _write_meta(data, rng)
    _write_names(data, rng)
    _write_loading(data, rng, start_ns)
    _write_control(data, rng)
    last = rng.choice((slots // 2, slots, slots + slots // 2, 3 * slots))
    markers = _markers(rng)
    for sequence in range(1, last + 1):
        kind, flag, value = next(markers)
        at = layout.SLOTS_OFFSET + sequence % slots * layout.SLOT_BYTES
        time_ns = start_ns + (sequence - max(0, last - slots)) * _MS
        _SLOT.pack_into(data, at, sequence, max(0, time_ns), kind, flag, os.getpid(), value)
    return bytes(data)


def _markers(rng: random.Random) -> Iterator[tuple[int, int, int]]:
    """(kind, flag, value) of a training loop with a loader, ranges and GPU times; now and then of nothing."""
    loader, event = 1 << layout.LOADER_SHIFT | 1, layout.FIRST_EVENT
    yield layout.ITER_BEGIN, 0, 0
    yield layout.ITER_END, 0, loader
    yield layout.GPU_ANCHOR, event, layout.pack_gpu_anchor(0, None)
    while True:
        events = [event + at for at in range(5)]
        loop = [(layout.FETCH_BEGIN, 2, loader), (layout.FETCH_END, events[0], loader), (layout.RANGE_PUSH, 0, 2),
                (layout.BACKWARD_BEGIN, events[1], 0), (layout.BACKWARD_END, events[2], 0), (layout.RANGE_POP, 0, 3),
                (layout.OPTIMIZER_BEGIN, events[3], 9), (layout.OPTIMIZER_END, events[4], 9)]  # fmt: skip
        loop += [(layout.GPU_TIME, at, layout.pack_gpu_time(at * _MS, rng.choice((None, 5)), rng.random() < 0.5))
                 for at in events]  # fmt: skip
        loop += [(layout.TORCH_MEMORY, layout.MEMORY_ALLOCATED, 1 << 30), (layout.GC_PAUSE, 2, _MS),
                 (layout.MARK, 0, 4), (layout.WORKER, 1, os.getpid()),
                 (layout.BATCH, 1, layout.pack_batch(1 << 20, 8, True, None))]  # fmt: skip
        for kind, flag, value in loop:
            if rng.random() < 0.02:
                yield rng.choice(_KINDS), rng.choice((flag, 0, 0xFFFF)), rng.choice((value, *_EXTREMES))
            elif rng.random() > 0.01:
                yield kind, flag, value
        event = layout.FIRST_EVENT + (event + 5) % 60_000


def _write_meta(data: bytearray, rng: random.Random) -> None:
    meta = {"run": "r", "rank": rng.choice((0, -1, 10**30, "x")), "world_size": rng.choice((2, 0, None)), "gc": True,
            "python": hostile_text(rng, "3.11"), "torch": hostile_text(rng, "2.1"),
            "gpu_uuids": ["GPU-0", hostile_text(rng)], "parameter_dtypes": [hostile_text(rng)],
            "optimizers": [{"name": hostile_text(rng, "SGD"), "package": "torch", "fused": rng.choice((True, 1, "x")),
                            "tensors": rng.choice((2, -1, 10**30, "x"))}],
            "deep": None}  # fmt: skip
    raw = json.dumps(meta).encode()
    if rng.random() < 0.1:
        raw = rng.choice((b"[" * 8000, b'{"a":' * 1600, b"1" * 8000, b'{"rank": NaN}', b'{"rank": 1e999}'))
    raw = raw[: layout.META_BYTES]
    data[layout.META_OFFSET : layout.META_OFFSET + len(raw)] = raw
    layout.U32.pack_into(data, layout.META_LENGTH_OFFSET, len(raw))


def _write_names(data: bytearray, rng: random.Random) -> None:
    facts = {"n": rng.choice((1, 1, 1e999, -5, 10**40)), "dataset": hostile_text(rng, "Photos"), "kind": "map",
             "workers": rng.choice((2, 2, 0, -1, 1e999, 10**40)), "prefetch": 2, "batch": 8, "pin": False,
             "persistent": False, "context": "fork"}  # fmt: skip
    text = json.dumps(facts) if rng.random() < 0.9 else "[" * 60_000
    place = f"{hostile_text(rng, 'augment')}\x1f/home/me/train.py\x1fmain\x1f{rng.choice((3, 10**4000))}"
    at = layout.NAMES_OFFSET
    for name in (text, place, "\x1f/home/me/train.py\x1fmain\x1f9", hostile_text(rng, "mark")):
        raw = name.encode()[:65535]
        layout.U16.pack_into(data, at, len(raw))
        data[at + 2 : at + 2 + len(raw)] = raw
        at += 2 + len(raw)
    layout.U32.pack_into(data, layout.NAME_COUNT_OFFSET, 4)


def _write_loading(data: bytearray, rng: random.Random, now_ns: int) -> None:
    for number in range(2):
        values = [now_ns, 5, 10 * _MS, 10 * _MS, 10 * _MS, 10 * _MS]
        if rng.random() < 0.3:
            values[rng.randrange(6)] = rng.choice(_EXTREMES)
        at = layout.LOADING_OFFSET + number * 128
        LOADING_SLOT.pack_into(data, at, 1, 12345, os.getpid(), 1, rng.choice((0, 0xFFFF)), 2, 0, 0, *values, 1)


def _write_control(data: bytearray, rng: random.Random) -> None:
    """The words of an agent that takes orders, with one taken, one open; now and then of nothing."""
    words = [0] * control_words.CONTROL_WORDS
    words[:3] = [control_words.CONTROL_VERSION, 0b1111, 7]
    for command in control_words.Command:
        number, argument = rng.choice((1, 5, 2**40)), rng.choice((0, 1, 5, *_EXTREMES))
        order = (number, argument, control_words.check_of(command, number, argument), time.monotonic_ns())
        answer = (number - rng.randint(0, 1), rng.choice((0, 1, 2, 3, 4, 5, 9)), 3, rng.choice((0, 1, 4, 99)))
        at = control_words.slot_word(command)
        words[at : at + 8] = [*order, *answer]
    for _ in range(rng.choice((0, 0, 1, 4, 40))):
        words[rng.randrange(len(words))] = rng.choice((*_EXTREMES, rng.getrandbits(64)))
    data[control_words.CONTROL_OFFSET : _CONTROL_END] = b"".join(map(layout.U64.pack, words))


def _damage(data: bytearray, slots: int, rng: random.Random) -> None:
    """Change one thing: a number of the header, of the tables or of a slot, bytes anywhere, the length."""
    if len(data) < layout.SLOTS_OFFSET + slots * layout.SLOT_BYTES:
        return
    pick = rng.random()
    if pick < 0.15:
        at = rng.choice((12, 16, 20, 24, layout.NAME_COUNT_OFFSET, layout.META_LENGTH_OFFSET, 80))
        layout.U32.pack_into(data, at, rng.choice(_EXTREMES) & 0xFFFF_FFFF)
    elif pick < 0.65:
        at = layout.SLOTS_OFFSET + rng.randrange(slots) * layout.SLOT_BYTES
        field = rng.choice((0, 0, 8, 8, 16, 24))
        (was,) = layout.U64.unpack_from(data, at + field)
        value = rng.choice((*_EXTREMES, was + 1, was - 1, was + slots, was * 2, was + 10**12, was + 86_400 * 10**9))
        layout.U64.pack_into(data, at + field, value & (2**64 - 1))
    elif pick < 0.75:
        one, other = (layout.SLOTS_OFFSET + rng.randrange(slots) * layout.SLOT_BYTES for _ in range(2))
        data[one : one + 32], data[other : other + 32] = data[other : other + 32], data[one : one + 32]
    elif pick < 0.97:
        sections = (layout.META_OFFSET, layout.NAMES_OFFSET, layout.LOADING_OFFSET, layout.SLOTS_OFFSET)
        begin = rng.choice((0, control_words.CONTROL_OFFSET, *sections))
        for _ in range(rng.randint(1, 8)):
            with suppress(IndexError):
                data[begin + rng.randrange(256)] = rng.randrange(256)
    elif len(data) > 64:
        del data[rng.randrange(len(data)) :]
