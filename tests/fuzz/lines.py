"""Logs with damaged lines."""

import copy
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.fleet_logs import write as write_nodes
from bench.fleet_ranks import Job
from tests.fuzz.hostile import STRINGS, TYPES, hostile_text, made, places_in
from tests.views import streams
from tuimon.records import Exit, Frames, Header, TorchMemory

_INTEGERS = (-1, 0, 1, 2, 1000, 5000, 2**31, 2**53, 2**62, 2**63, 2**64, 2**70, -(2**31), -(2**63), 10**30)
_REALS = (-1.0, 0.0, -0.0, 0.5, 1.0, 1e-300, 1e9, 1e15, 1e18, 1e308, -1e308)
_OTHERS = (None, True, False, [], {}, [[]], [None], {"": None}, [0] * 50, "0", "NaN")
#: Most lines of one damaged log: short logs are read faster, and more of what is damaged matters.
_LINES = 80


def seed_log() -> list[bytes]:
    """A log to damage: a run of a minute with a record of every type."""
    rng = random.Random(1)
    records = [*streams.start(), *(made(kind, rng) for kind in TYPES if kind not in (Header, Exit, Frames))]
    for t, second in enumerate(streams.seconds(1, 60, ranges=streams.RANGES), 1):
        records += [*second, streams.gpu(t, 0, pids=[streams.MAIN]), streams.gpu_time(t, 40.0, 0.84, 0.31)]
        records.append(TorchMemory(t=float(t), pid=streams.MAIN, device=0, allocated_bytes=2**33))
    records.append(Exit(t=62.0, pid=streams.MAIN, exit_code=137, signal="SIGKILL", last_line="ValueError: x"))
    return [msgspec.json.encode(record) for record in records]


def seed_nodes(folder: str) -> dict[str, list[bytes]]:
    """Logs of a run on three nodes, to damage, by the names of their files; made in a folder."""
    paths = map(Path, write_nodes(folder, Job(nodes=3, ranks=2, seconds=14.0)))
    return {path.name: path.read_bytes().splitlines() for path in paths}


def damaged(log: Sequence[bytes], rng: random.Random, count: int) -> list[bytes]:
    """A part of a log with ``count`` lines damaged, the header seldom."""
    begin = rng.randrange(max(1, len(log) - _LINES))
    facts = [line for line in log[1:begin] if b'"frames","' in line or b'"process"' in line][-20:]
    lines = [log[0], *facts, *log[max(begin, 1) : begin + _LINES]]
    for _ in range(count):
        damage_one(lines, rng)
    if rng.random() < 0.3:
        _damage_alike(lines, rng)
    if rng.random() < 0.1:
        del lines[rng.randrange(1, len(lines))]
    if rng.random() < 0.1:
        first, second = rng.randrange(1, len(lines)), rng.randrange(1, len(lines))
        lines[first], lines[second] = lines[second], lines[first]
    if rng.random() < 0.1:
        lines.insert(rng.randrange(1, len(lines)), msgspec.json.encode(made(rng.choice(TYPES), rng)))
    return lines


def damage_one(lines: list[bytes], rng: random.Random) -> None:
    """Damage one of the lines, the header seldom."""
    at = rng.randrange(0 if rng.random() < 0.05 else 1, len(lines))
    lines[at] = _damaged(lines[at], rng)


def _damaged(line: bytes, rng: random.Random) -> bytes:
    """One line with one to three values of its JSON changed, or some of its bytes."""
    if rng.random() < 0.15:
        return _damaged_bytes(line, rng)
    try:
        content = json.loads(line)
    except ValueError:
        return _damaged_bytes(line, rng)
    for _ in range(rng.choice((1, 1, 1, 2))):
        if places := list(places_in(content)):
            _damage(*rng.choice(places), rng)
    return json.dumps(content, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _damage_alike(lines: list[bytes], rng: random.Random) -> None:
    """Put one value into one field of every line of a type."""
    try:
        content = json.loads(rng.choice(lines[1:]))
    except ValueError:
        return
    if not isinstance(content, dict) or len(content) < 4:
        return
    key = rng.choice([key for key in content if key not in ("type", "t", "pid")])
    was = content[key]
    value: Any = rng.choice((0, 1, 2**40, None)) if isinstance(was, (int, float)) else rng.choice(([], None, ""))
    if isinstance(was, list) and was and isinstance(was[0], list) and rng.random() < 0.7:
        at = rng.randrange(len(was[0]))
        number = rng.choice((0, 1, 2**40))
        value = [
            [number if i == at and isinstance(x, (int, float)) else x for i, x in enumerate(row)]
            for row in was
            if isinstance(row, list)
        ]
    for number, line in enumerate(lines):
        try:
            other = json.loads(line)
        except ValueError:
            continue
        if isinstance(other, dict) and other.get("type") == content.get("type"):
            lines[number] = json.dumps(other | {key: value}).encode()


def _damage(owner: Any, key: Any, rng: random.Random) -> None:
    was = owner[key]
    pick = rng.random()
    if pick < 0.05:
        del owner[key]
    elif isinstance(was, bool) or was is None or pick < 0.1:
        owner[key] = rng.choice((*_INTEGERS, *_REALS, *_OTHERS, *STRINGS))
    elif isinstance(was, int):
        owner[key] = rng.choice((*_INTEGERS, -was, was * 1000, was // 1000, was + rng.randint(-5, 5)))
    elif isinstance(was, float):
        owner[key] = rng.choice((*_REALS, -was, was * 1000, was / 1000, was + rng.randint(-5, 5)))
    elif isinstance(was, str):
        owner[key] = hostile_text(rng, was)
    elif isinstance(was, list) and was:
        owner[key] = rng.choice((was * 2, was * 300, was[::-1], was[:-1], [*was, copy.deepcopy(was[0])], []))
    else:
        owner[key] = copy.deepcopy(rng.choice(_OTHERS))


def _damaged_bytes(line: bytes, rng: random.Random) -> bytes:
    data = bytearray(line)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(4):
            case 0 if data:
                data[at] = rng.randrange(256)
            case 1:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
            case 2:
                del data[at : at + rng.randint(1, 20)]
            case _:
                data[at:at] = data[at : at + rng.randint(1, 40)]
    return bytes(data).replace(b"\n", b"")
