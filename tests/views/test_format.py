"""Figures, lines and JSON for people."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.hostile import CONTROLS, STRINGS
from tuimon.text import plain, whole_number
from tuimon.views import format as people
from tuimon.views.format import wrap
from tuimon.views.json_text import json_text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (0.0004, "<0.001"),
        (0.0042, "0.004"),
        (0.38, "0.38"),
        (7.14, "7.1"),
        (41.52, "41.5"),
        (99.97, "100"),
        (312.4, "312"),
    ],
)
def test_number(value: float | None, shown: str) -> None:
    assert people.number(value) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"), [(None, "–"), (0.0, "0 %"), (0.001, "<1 %"), (0.005, "<1 %"), (0.62, "62 %"), (1.5, "150 %")]
)
def test_percent(ratio: float | None, shown: str) -> None:
    assert people.percent(ratio) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.44, "0.4s"),
        (9.96, "10s"),
        (59.6, "1m00s"),
        (192, "3m12s"),
        (3599.7, "1h00m"),
        (7500, "2h05m"),
        (273600, "3d04h"),
    ],
)
def test_duration(seconds: float, shown: str) -> None:
    assert people.duration(seconds) == shown


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "shown"),
    [
        (6.31, 25.4, "6.3 to 25.4 ms"),
        (0.0, 25.4, "up to 25.4 ms"),
        (25.41, 25.42, "25.4 ms"),
        (0.0, 0.0, "0 ms"),
        (0.0, 1e-4, "<0.001 ms"),
        (500.0, 12_345, "0.50 to 12.3 s"),
    ],
)
def test_times_between_bounds(low_ms: float, high_ms: float, shown: str) -> None:
    assert people.ms_range(low_ms, high_ms, " to ") == shown


def test_other_figures() -> None:
    assert people.ms(41.52) == "41.5 ms"
    assert people.ms(12_345) == "12.3 s"
    assert people.ms(12_345, unit=False) == "12345"
    assert people.size(512) == "512 B"
    assert people.size(62 << 20) == "62 MiB"
    assert people.size(int(21.4 * 2**30)) == "21.4 GiB"
    assert people.clock(83.9) == "00:01:23"
    assert people.rate(14.9) == "14.9 steps/s"
    assert people.rate(0.24) == "4.2 s/step"
    assert people.count(12345) == "12 345"
    assert people.shorten("abcdef", 4) == "abc…"
    absent = (people.ms, people.size, people.duration, people.clock, people.rate, people.count, people.watt)
    assert all(show(None) == "–" for show in absent)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a[bold]b", "a[bold]b"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("\x1bPq#0\x1b\\x", "x"),
        ("a\tb\r\nc", "a b  c"),
        ("\x00\x07\x7f\x9b31mx", "31mx"),
        ("abc\u202egnp.exe", "abcgnp.exe"),
        ("\udcff ü 日本", " ü 日本"),
        ("\x1b", ""),
    ],
)
def test_text_from_outside(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize("text", ["", "-1", "1.0", "1_0", " 1", "\u00b2", "\u0663", "1" + 18 * "0", 5000 * "9"])
def test_text_that_is_no_number(text: str) -> None:
    assert whole_number(text) is None


def test_places() -> None:
    assert people.place("/a/b/train.py", 44) == "train.py:44"
    assert people.place("/a/\x1b[31mx.py", 0) == "x.py"
    assert people.place("/a/a_long_name.py", 44, width=8) == "…e.py:44"
    assert people.place("/a/a_long_name.py", 44, width=17) == "a_long_name.py:44"
    assert people.place("/a/a_long_name.py", 44, width=4) == "a_l…"


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0, ""), (0.995, ""), (0.8, "80 % of the steps timed"), (1 / 13, "1 of 13 steps timed")]
)
def test_how_many_steps_were_timed(ratio: float, text: str) -> None:
    assert people.timed_steps(ratio) == text


# -- plain text in lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("the GPU waits 91 % of it", ["the GPU waits", "  91 % of it"]),
        ("a step takes 12 ms, or 1.5 GiB", ["a step takes", "  12 ms, or", "  1.5 GiB"]),
        ("at /home/somebody/src/train.py:31 main", ["at", "  /home/somebody/src/train.py:31", "  main"]),
        ("3 steps/s", ["3 steps/s"]),
        ("", []),
    ],
)
def test_a_line_is_broken_at_spaces_but_not_before_a_unit(text, lines):
    assert wrap(text, 15, later="  ") == lines


# -- JSON on a terminal


@pytest.mark.parametrize("indent", [None, 2])
def test_json_holds_no_raw_control_character_and_says_the_same(indent: int | None) -> None:
    content = {"\x9b31m": list(STRINGS)}
    text = json_text(content, indent=indent)
    assert not CONTROLS.search(text)
    assert json.loads(text) == content
