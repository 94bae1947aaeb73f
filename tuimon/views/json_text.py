"""JSON that may be written to a terminal."""

from __future__ import annotations

import msgspec

from tuimon.text import RAW_IN_JSON


def json_text(content: object, indent: int | None = None) -> str:
    """``content`` as JSON and a line end; control characters are ``\\uXXXX``, where JSON would let them stand too."""
    data = msgspec.json.encode(content)
    text = (data if indent is None else msgspec.json.format(data, indent=indent)).decode()
    return RAW_IN_JSON.sub(lambda found: f"\\u{ord(found.group()):04x}", text) + "\n"
