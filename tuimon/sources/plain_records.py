"""Text from outside is made safe where a record enters, in every field of every type, so that no view can forget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct, inspect, structs

from tuimon.records import Record
from tuimon.text import plain

#: Longer text is cut: the longest that is shown whole is a command line.
TEXT_LIMIT = 16 * 1024

_Clean = Callable[[Any], Any]  # Any: a value of the field's type, and returned as such
_R = TypeVar("_R", bound=Record)


def plain_record(record: _R) -> _R:
    """The record, with all its text on one line, without escape sequences and control characters."""
    clean = _struct_cleaner(type(record))
    cleaned: _R = clean(record)
    return cleaned


def _text(value: str) -> str:
    # all that ``plain`` removes is unprintable
    return value if len(value) <= TEXT_LIMIT and value.isprintable() else plain(value[:TEXT_LIMIT])


@cache
def _struct_cleaner(kind: type[Struct]) -> _Clean:
    """Cleans a struct's fields that hold text; the struct itself is returned where nothing changes."""
    fields = [(field.name, _cleaner(field.type)) for field in _fields(kind)]
    texts = [(name, clean) for name, clean in fields if clean is not None]

    def clean_struct(value: Struct) -> Struct:
        changed = {}
        for name, clean in texts:
            before = getattr(value, name)
            if before is not None and (after := clean(before)) is not before:
                changed[name] = after
        return structs.replace(value, **changed) if changed else value

    return clean_struct


def _fields(kind: type[Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    return info.fields if isinstance(info, inspect.StructType) else ()


def _cleaner(kind: inspect.Type) -> _Clean | None:
    """The function that cleans values of a type; None if they hold no text."""
    match kind:
        case inspect.StrType():
            return _text
        case inspect.StructType():
            return _struct_cleaner(kind.cls) if any(_cleaner(field.type) for field in kind.fields) else None
        case inspect.UnionType():  # of one type and None
            return next(filter(None, map(_cleaner, kind.types)), None)
        case inspect.ListType():
            return _row_cleaner(_cleaner(kind.item_type), list)
        case inspect.VarTupleType():
            return _row_cleaner(_cleaner(kind.item_type), tuple)
        case inspect.TupleType():
            return _tuple_cleaner([_cleaner(each) for each in kind.item_types])
        case inspect.DictType():
            return _dict_cleaner(_cleaner(kind.key_type), _cleaner(kind.value_type))
        case _:
            return None


def _row_cleaner(clean: _Clean | None, row_of: type[list[Any] | tuple[Any, ...]]) -> _Clean | None:
    """Cleans each of any number of values of one type."""
    if clean is None:
        return None

    def clean_row(values: Sequence[Any]) -> Sequence[Any]:  # Any: see _Clean
        cleaned = row_of(clean(value) for value in values)
        return cleaned if any(a is not b for a, b in zip(cleaned, values, strict=True)) else values

    return clean_row


def _tuple_cleaner(cleaners: list[_Clean | None]) -> _Clean | None:
    if not any(cleaners):
        return None

    def clean_tuple(values: tuple[Any, ...]) -> tuple[Any, ...]:  # Any: see _Clean
        cleaned = tuple(clean(value) if clean else value for clean, value in zip(cleaners, values, strict=True))
        return cleaned if any(a is not b for a, b in zip(cleaned, values, strict=True)) else values

    return clean_tuple


def _dict_cleaner(clean_key: _Clean | None, clean_value: _Clean | None) -> _Clean | None:
    if clean_key is None and clean_value is None:
        return None

    def clean_dict(values: dict[Any, Any]) -> dict[Any, Any]:  # Any: see _Clean
        return {
            clean_key(key) if clean_key else key: clean_value(value) if clean_value else value
            for key, value in values.items()
        }

    return clean_dict
