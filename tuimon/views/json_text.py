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
    """``content`` as JSON and a line end; control characters are ``\\uXXXX``, where JSON would let them stand too."""
    data = _encoded(content)
    text = (data if indent is None else msgspec.json.format(data, indent=indent)).decode()
    return _escaped(text) + "\n"


def with_digits(value: Any, digits: int) -> Any:  # noqa: ANN401  (JSON)
    """JSON whose numbers have so many significant digits at most."""
    return _mapped(value, lambda leaf: float(f"{leaf:.{digits}g}") if isinstance(leaf, float) else leaf)


def _encoded(content: object) -> bytes:
    """As UTF-8, which has no form of a file name that is something else: U+FFFD stands for such bytes of it."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        return msgspec.json.encode(_mapped(msgspec.to_builtins(content), _replaced))


def _replaced(leaf: Any) -> Any:  # noqa: ANN401  (JSON)
    return _SURROGATES.sub("\ufffd", leaf) if isinstance(leaf, str) else leaf


def _mapped(value: Any, of: Callable[[Any], Any]) -> Any:  # noqa: ANN401  (JSON)
    """JSON with another value, and another name, in the place of each."""
    if isinstance(value, dict):
        return {of(name): _mapped(each, of) for name, each in value.items()}
    return [_mapped(each, of) for each in value] if isinstance(value, list | tuple) else of(value)


def _escaped(text: str) -> str:
    return RAW_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
