"""Hostile strings, records of any type made of them, and what may never reach a terminal."""

import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from tuimon.records import AnyRecord, Record

#: C0 but for the line end, DEL, C1, and what reorders or hides the text around it.
CONTROLS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
STRINGS = (
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]0;title\x1b\\",
    "\x1b[2J\x1b[31mred",
    "\x9b31mred",
    "\x9d52;c;ZXZpbA==\x9c",
    "\x1bP1$r0m\x1b\\",
    "\x1bc",
    "\x1b",
    "a\rb\nc\td\x00e\x08f\x0cg\x7f",
    "\u202egnp.exe\u202c",
    "\u061c\u200e\u200f\u2066x\u2069\u2028y\u2029",
    "zero\u200bwidth\u2060\ufeff",
    "<script>alert(1)</script><!--",
    "[bold]x[/] [link=file:///etc/passwd]y[/]",
    "{0.__class__} %s %(x)d ${HOME} `id`",
    "漢字かな" * 10,
    "e" + "\u0301" * 40,
    "👩\u200d👩\u200d👧\u200d👦",
    "../../../etc/passwd",
    "x" * 5000,
    "y " * 3000,
    "/" * 300,
    ";;;:::   ",
    "",
    " ",
)
#: All types of records.
TYPES: tuple[type[Record], ...] = AnyRecord.__args__


def hostile_text(rng: random.Random, was: str = "") -> str:
    """A hostile string: alone, in the middle of an innocent one, or several."""
    parts = [rng.choice(STRINGS) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    at = rng.randint(0, len(was))
    return was[:at] + "".join(parts) + (was[at:] if rng.random() < 0.7 else "")


def made(record_type: type[Record], rng: random.Random) -> Record:
    """A record of this type, every field of it filled, every string hostile."""
    record = _value(inspect.type_info(record_type), rng)
    assert isinstance(record, Record)
    return record


def with_hostile_strings(record: Record, rng: random.Random, ratio: float = 0.5) -> bytes:
    """The record's line, some of its strings made hostile; closed choices stay."""
    line = msgspec.json.encode(record)
    content = msgspec.json.decode(line)
    for owner, key in list(places_in(content)):
        was = owner[key]
        if not isinstance(was, str) or rng.random() >= ratio:
            continue
        owner[key] = hostile_text(rng, was)
        try:
            msgspec.convert(content, type(record))
        except msgspec.ValidationError:
            owner[key] = was
    return msgspec.json.encode(content)


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each dict or list of JSON with each of its keys or indices, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from places_in(item)


def _value(kind: inspect.Type, rng: random.Random) -> Any:
    match kind:
        case inspect.StructType() | inspect.NamedTupleType():
            return kind.cls(**{field.name: _value(field.type, rng) for field in kind.fields})
        case inspect.UnionType():
            return _value(rng.choice([each for each in kind.types if not isinstance(each, inspect.NoneType)]), rng)
        case inspect.ListType():
            return [_value(kind.item_type, rng) for _ in range(2)]
        case inspect.VarTupleType():
            return tuple(_value(kind.item_type, rng) for _ in range(2))
        case inspect.TupleType():
            return tuple(_value(each, rng) for each in kind.item_types)
        case inspect.DictType():
            return {_value(kind.key_type, rng): _value(kind.value_type, rng) for _ in range(2)}
        case inspect.LiteralType():
            return rng.choice(kind.values)
        case inspect.StrType():
            return hostile_text(rng, "innocent")
        case inspect.BoolType():
            return rng.random() < 0.5
        case inspect.IntType():
            return rng.randint(1, 50)
        case inspect.FloatType():
            return rng.uniform(0.5, 50.0)
        case _:
            raise TypeError(f"no values of {kind} are known")
