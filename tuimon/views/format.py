"""Figures and lines for people: the one place in which ratios become percent, nanoseconds milliseconds, bytes GiB.

``None`` means "not measured" and is always shown as an en dash, never as 0.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from tuimon.text import SourceLine, duration_text, function_text, ms_text, number_text, size_text
from tuimon.text import percent as known_percent
from tuimon.text import plain as plain  # noqa: PLC0414  (texts from outside are shown next to figures)

ABSENT = "–"
#: Columns of a text, those of an e-mail; and on a wider terminal: longer lines are hard to read.
WIDTH = 78
MAX_WIDTH = 100
#: The most of a list that are named in a sentence or under a heading, listed in a text, and shown on a page.
NAMED = 3
LISTED = 8
ON_PAGE = 16
#: Smaller shares are shown as none; bounds that exclude no more than this share of the whole say nothing.
NOTHING = 0.005
#: The space before a unit.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|s|GiB|MiB|KiB|Hz|W)(?![\w/]))")
#: A space at which no line is broken.
_KEPT = "\xa0"


def number(value: float | None) -> str:
    """Three significant digits without an exponent: ``0.38``, ``7.1``, ``41.5``, ``312``."""
    return ABSENT if value is None else number_text(value)


def ms(value_ms: float | None, *, unit: bool = True) -> str:
    """Milliseconds as ``41.5 ms``; ten seconds or more as ``12.3 s`` (always ms when ``unit`` is False)."""
    if value_ms is None:
        return ABSENT
    return ms_text(value_ms) if unit else number_text(value_ms)


def percent(ratio: float | None, digits: int = 0) -> str:
    """A ratio (0..1) as ``62 %``; a ratio above 0 is never shown as 0 (``<1 %``)."""
    return ABSENT if ratio is None else known_percent(ratio, digits)


def ms_range(low_ms: float, high_ms: float, to: str = "–") -> str:
    """``6.1–25.4 ms``: a time known only to lie between two others; ``25.4 ms`` if these look the same.

    In words, with ``to=" to "``, a range from 0 is ``up to 25.4 ms``.
    """
    per_unit, unit = (1000, "s") if high_ms >= 10_000 else (1, "ms")
    low, high = number(low_ms / per_unit), number(high_ms / per_unit)
    if low == high or (low_ms == 0 and high.startswith("<")):
        return f"{high} {unit}"
    return f"up to {high} {unit}" if low == "0" and to == " to " else f"{low}{to}{high} {unit}"


def percent_range(low: float, high: float, to: str = "–") -> str:
    """``12–60 %``: a ratio known only to lie between two others; ``12 %`` if these look the same."""
    least, most = percent(min(low, 1.0)), percent(min(high, 1.0))
    if least == most or (low == 0 and most.startswith("<")):
        return most
    return f"{least.removesuffix(' %')}{to}{most}"


def spread_text(texts: Iterable[str]) -> str:
    """``512–519 W`` of ``512 W`` and ``519 W``: the least and the most of figures in one unit; a dash without any."""
    known = sorted({text for text in texts if text != ABSENT}, key=lambda text: float(text.split()[0].lstrip("<")))
    least, most = (known[0], known[-1]) if known else (ABSENT, ABSENT)
    return most if least == most else f"{least.split()[0]}–{most}"


def says_nothing(low: float, high: float, whole: float | None = 1.0) -> bool:
    """True if two bounds of a share exclude almost nothing."""
    return bool(whole) and high - low >= (1.0 - NOTHING) * (whole or 0.0)


def size(value_bytes: float | None) -> str:
    """Bytes as ``512 B``, ``62 MiB``, ``21.4 GiB``."""
    return ABSENT if value_bytes is None else size_text(value_bytes)


def duration(value_s: float | None) -> str:
    """Seconds as ``0.4s``, ``12s``, ``3m12s``, ``2h05m``, ``3d04h``."""
    return ABSENT if value_s is None else duration_text(value_s)


def clock(value_s: float | None) -> str:
    """Seconds as ``00:01:23``."""
    if value_s is None:
        return ABSENT
    whole = int(max(value_s, 0.0))
    return f"{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def rate(per_second: float | None, what: str = "steps") -> str:
    """A rate as ``14.9 steps/s``; below one every two seconds as ``4.2 s/step``."""
    if per_second is None:
        return ABSENT
    if 0 < per_second < 0.5:
        return f"{number(1 / per_second)} s/{what.removesuffix('s')}"
    return f"{number(per_second)} {what}/s"


def count(value: int | None) -> str:
    """A count with commas between groups of three digits: ``12,345``."""
    return ABSENT if value is None else f"{value:,}"


def timed_steps(ratio: float | None) -> str:
    """``1 of 13 steps timed``: how many were timed, the others only counted; empty if all were timed."""
    if ratio is None or ratio > 0.99:
        return ""
    return f"1 of {round(1 / ratio)} steps timed" if 0 < ratio < 0.6 else f"{percent(ratio)} of the steps timed"


def flops(value: float | None) -> str:
    """Floating-point operations as ``2.41 TFLOP``; a rate is this with an S."""
    if value is None:
        return ABSENT
    prefix, unit = next((each for each in (("P", 1e15), ("T", 1e12), ("G", 1e9)) if value >= each[1]), ("M", 1e6))
    return f"{number(value / unit)} {prefix}FLOP"


def watt(value_w: float | None) -> str:
    return ABSENT if value_w is None else f"{value_w:.0f} W"


def celsius(value_c: float | None) -> str:
    """Temperature as ``61 °C``."""
    return ABSENT if value_c is None else f"{value_c:.0f} °C"


def phase_name(name: str) -> str:
    """A phase's name for people; time that markers cannot split belongs to data or the forward pass."""
    return "data+forward" if name == "between" else name


def code(at: SourceLine) -> str:
    """A line of code without its indent; if its text is unknown, its function: ``main()``."""
    return plain(at.source).strip() or function_text(at.function)


def advice(message: str, hint: str | None, source: str = "") -> str:
    """A source's message and its fix, if known: ``no driver – install it``; with ``source``: ``gpu: no ...``."""
    return f"{source}: " * bool(source) + plain(message) + (f" – {plain(hint)}" if hint else "")


def shorten(text: str, width: int) -> str:
    """``text`` cut to ``width`` characters with an ellipsis (characters, not terminal cells)."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…" if width > 0 else ""


def kept_together(text: str) -> str:
    """The text with a no-break space between each number and its unit; ``freed`` takes them out again."""
    return _BEFORE_UNIT.sub(_KEPT, text)


def freed(text: str) -> str:
    """The text with ordinary spaces."""
    return text.replace(_KEPT, " ")


def wrap(text: str, width: int, later: str | None = None) -> list[str]:
    """The text as lines of at most ``width`` characters, unless a word is longer; at least one line.

    ``later``: the indent of all lines but the first; by default two more than that of the first.
    """
    lines = textwrap.wrap(
        kept_together(text),
        width,
        subsequent_indent=" " * (len(text) - len(text.lstrip()) + 2) if later is None else later,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [freed(line) for line in lines] or [""]
