"""Makes text from outside safe as a record enters, in every field of every type, so that no view can forget it."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from tuimon.records import Record
from tuimon.text import plain

#: Longer text is cut: the longest that is shown whole is a command line.
TEXT_LIMIT = 16 * 1024
#: Types of values that hold no text; most are of these.
_TEXTLESS = (int, float, bool, type(None))

# JSON's escapes but for quotes, slashes and backslashes: each may be a control character.
_ESCAPED = re.compile(rb'\\[^"/\\]')
_BACKSLASH, _DELETE = b"\\\x7f"

_R = TypeVar("_R", bound=Record)


def plain_record(record: _R) -> _R:
    """The record with each text on one line, without escape sequences and control characters.

    A record that needs no change stays the same object; for most, the JSON shows that in a twentieth of the time.
    """
    try:
        line = msgspec.json.encode(record)
        if len(line) <= TEXT_LIMIT and are_plain(line):
            return record
    except (ValueError, OverflowError):  # half a surrogate pair, a number that no log can hold
        pass
    cleaned: _R = _clean(record)
    return cleaned


def are_plain(lines: bytes) -> bool:
    """True if no text in these lines of JSON, each within ``TEXT_LIMIT``, can be unsafe. Most lines pass it."""
    safe = lines.isascii() and _DELETE not in lines
    return safe and (_BACKSLASH not in lines or _ESCAPED.search(lines) is None)


def _clean(value: Any) -> Any:  # noqa: ANN401  (of a record's field)
    kind = type(value)
    if kind in _TEXTLESS:
        return value
    if kind is str:  # all that ``plain`` removes is unprintable
        return value if len(value) <= TEXT_LIMIT and value.isprintable() else plain(value[:TEXT_LIMIT])
    if kind is dict:
        return {_clean(key): _clean(each) for key, each in value.items()}
    if isinstance(value, Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        changed = {name: clean for name, held in fields if (clean := _clean(held)) is not held}
        return structs.replace(value, **changed) if changed else value
    cleaned = [_clean(each) for each in value]  # a list, a tuple, or a named one
    is_same = all(a is b for a, b in zip(cleaned, value, strict=True))
    return value if is_same else getattr(kind, "_make", kind)(cleaned)
