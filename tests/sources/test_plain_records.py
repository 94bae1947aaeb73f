"""All text of all types of records is made safe; what is safe stays the same object."""

import random
from collections.abc import Iterator

import msgspec
import pytest

from tests.fuzz.hostile import CONTROLS, TYPES, made
from tests.session.records import header
from tuimon.records import Header, Record
from tuimon.sources.log.reader import decode
from tuimon.sources.plain_records import TEXT_LIMIT, plain_record


def texts(value: object) -> Iterator[str]:
    """All strings in JSON, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(8))
def test_no_field_of_any_type_keeps_a_control_character(kind: type[Record], seed: int) -> None:
    record = made(kind, random.Random(seed))
    decoded = decode(msgspec.json.encode(record))
    assert decoded is not None
    for safe in (plain_record(record), decoded):
        found = list(texts(msgspec.to_builtins(safe)))
        assert not [text for text in found if CONTROLS.search(text)]
        assert max(map(len, found)) <= TEXT_LIMIT
        assert plain_record(safe) is safe or kind is Header  # a dict is made anew


def test_keys_are_text_too() -> None:
    named = msgspec.structs.replace(header(), versions={"tui\x1b[2Jmon": "0\n"})
    assert plain_record(named).versions == {"tuimon": "0 "}
