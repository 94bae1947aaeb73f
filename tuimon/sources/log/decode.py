"""One line of a log: the record it holds, made safe, or why it holds none."""

from __future__ import annotations

import contextlib
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
    return record if len(line) <= TEXT_LIMIT and _is_safe(line) else plain_record(record)


def decode_lines(lines: bytes) -> tuple[list[Record], int]:
    """The records of whole lines, in a third of the time that ``decode`` takes line by line; how many are no records.

    Blank and torn lines are not counted: what was torn was written again.
    """
    each = lines.split(b"\n")
    if max(map(len, each)) <= TEXT_LIMIT and _is_safe(lines):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            records: list[Record] = list(_decoder().decode_lines(lines))
            if len(records) == len(each) - 1:  # otherwise lines are blank, or not what they seem
                return records, 0
    decoded = [(decode(line), line) for line in each]
    skipped = sum(record is None and line.rstrip().endswith(b"}") for record, line in decoded)
    return [record for record, _ in decoded if record is not None], skipped


def _is_safe(lines: bytes) -> bool:
    """True if no text in them can be unsafe: a tenth of a microsecond, and most lines hold nothing that could be."""
    safe = lines.isascii() and _DELETE not in lines
    return safe and (_BACKSLASH not in lines or _ESCAPED.search(lines) is None)


def check_header(line: bytes, path: str) -> Header:
    """The header on the first line. Raises NotALog with what the file is instead."""
    name = plain(path)
    try:
        tag = msgspec.json.decode(line, type=_Tag)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotALog(f"{name} is not a tuimon log", RECORD_ONE) from None
    if tag.type != "header":
        raise NotALog(f"{name} is not a tuimon log: its first line is not a header", RECORD_ONE)
    if tag.schema is not None and tag.schema > SCHEMA:
        from tuimon.installation import upgrade_command  # noqa: PLC0415  (of use after a mistake alone)

        raise NotALog(
            f"{name} was written by a newer tuimon (schema {tag.schema}, this one reads {SCHEMA})",
            f"Upgrade: {upgrade_command()}",
        )
    header = decode(line)
    if not isinstance(header, Header):
        raise NotALog(f"{name} is not a tuimon log: its header is damaged", RECORD_ONE)
    return header
