"""JSON that may be written to a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from tuimon.text import RAW_IN_JSON

#: Characters that ``os.fsdecode`` makes of bytes that are not UTF-8.
_SURROGATES = re.compile("[\ud800-\udfff]")


def json_text(content: object, indent: int | None = None) -> str:
    """``content`` as JSON and a line end; control characters become ``\\uXXXX``, even those that JSON allows.

    Bytes of a file name that are not UTF-8 become U+FFFD.
    """
    try:
        data = msgspec.json.encode(content)
    except UnicodeEncodeError:
        values = msgspec.to_builtins(content)
        data = msgspec.json.encode(_mapped(values, lambda leaf: _SURROGATES.sub("\ufffd", leaf), str))
    text = (data if indent is None else msgspec.json.format(data, indent=indent)).decode()
    return RAW_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", text) + "\n"


def with_digits(value: Any, digits: int) -> Any:  # noqa: ANN401  (JSON)
    """JSON whose numbers have at most ``digits`` significant digits."""
    return _mapped(value, lambda leaf: float(f"{leaf:.{digits}g}"), float)


def _mapped(value: Any, of: Callable[[Any], Any], kind: type) -> Any:  # noqa: ANN401  (JSON)
    """JSON with ``of`` applied to each value, and each name, of this type."""
    if isinstance(value, dict):
        return {_mapped(name, of, kind): _mapped(each, of, kind) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(each, of, kind) for each in value]
    return of(value) if isinstance(value, kind) else value
