"""JSON on a terminal."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.hostile import CONTROLS, STRINGS
from tuimon.views.json_text import json_text


@pytest.mark.parametrize("indent", [None, 2])
def test_json_holds_no_raw_control_character_and_says_the_same(indent: int | None) -> None:
    content = {"\x9b31m": list(STRINGS)}
    text = json_text(content, indent=indent)
    assert not CONTROLS.search(text)
    assert json.loads(text) == content
