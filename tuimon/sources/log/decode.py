"""One line of a log: the record it holds, made safe, or why it holds none."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from tuimon.errors import NotALog
from tuimon.records import SCHEMA, AnyRecord, Header, Record
from tuimon.sources.plain_records import TEXT_LIMIT, plain_record
from tuimon.text import plain

RECORD_ONE = "Record one: tuimon run --log FILE.jsonl train.py"

# JSON's escapes but for quotes, slashes and backslashes: each may be a control character.
_ESCAPED = re.compile(rb'\\[^"/\\]')
_BACKSLASH, _DELETE = b"\\\x7f"


class _Tag(msgspec.Struct):
    """The part of a line that identifies it."""

    type: str = ""
    schema: int | None = None


@cache
def _decoder() -> msgspec.json.Decoder[AnyRecord]:
    """One for all lines: it takes 7 ms to make, and a run that is watched reads no log."""
    return msgspec.json.Decoder(AnyRecord)


def decode(line: bytes) -> Record | None:
    """The record of a line, its text made safe; None for an unknown type, a torn line, or figures beyond any run."""
    try:
        record = _decoder().decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # a tenth of a microsecond in all: most lines hold nothing that could be unsafe
    safe = len(line) <= TEXT_LIMIT and line.isascii() and _DELETE not in line
    if safe and (_BACKSLASH not in line or _ESCAPED.search(line) is None):
        return record
    return plain_record(record)


def check_header(line: bytes, path: str) -> Header:
    """The header on the first line. Raises NotALog with what the file is instead."""
    name = plain(path)
    try:
        tag = msgspec.json.decode(line, type=_Tag)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotALog(f"{name} is no tuimon log", RECORD_ONE) from None
    if tag.type != "header":
        raise NotALog(f"{name} is no tuimon log: its first line is no header", RECORD_ONE)
    if tag.schema is not None and tag.schema > SCHEMA:
        raise NotALog(
            f"{name} was written by a newer tuimon (schema {tag.schema}, this one reads {SCHEMA})",
            "Upgrade: pip install --upgrade tuimon",
        )
    header = decode(line)
    if not isinstance(header, Header):
        raise NotALog(f"{name} is no tuimon log: its header is damaged", RECORD_ONE)
    return header
