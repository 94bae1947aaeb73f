"""Text from outside (names, paths, output, logs) is data: control sequences are removed. And sizes in words."""

from __future__ import annotations

import re
from typing import Protocol

# CSI, OSC (ended by BEL or ST), other two-character escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
# Characters that reorder or hide the text around them, or end a line, and code points that are not characters.
_FORMAT = "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
# C0, DEL, C1, and _FORMAT.
_CONTROLS = re.compile(f"[\x00-\x1f\x7f-\x9f{_FORMAT}]")
#: Parts of kernels' names that say nothing: the type that they return, and namespaces.
_EVERYWHERE = re.compile(r"^void |\(anonymous namespace\)::|\bat::native::")
#: Lines of code that are read, and shown, before and after one.
AROUND_LINES = 3
#: The control characters that a JSON encoder leaves as they are: it escapes only C0.
RAW_IN_JSON = re.compile(f"[\x7f-\x9f{_FORMAT}]")


def plain(text: str) -> str:
    """``text`` on one line, without escape sequences and control characters; tabs and line ends become spaces."""
    text = _ESCAPES.sub("", text)
    text = text.replace("\t", " ").replace("\r", " ").replace("\n", " ")
    return _CONTROLS.sub("", text)


def whole_number(text: str) -> int | None:
    """The number that ``text`` spells in ASCII digits, at most 18 of them; None for any other text."""
    # this many always fit into 62 bits, a record's limit
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def number_text(value: float) -> str:
    """Three significant digits without an exponent: ``0.38``, ``7.1``, ``41.5``, ``312``."""
    size_of = abs(value)
    if size_of >= 99.95:
        return f"{value:.0f}"
    if size_of >= 0.995:
        return f"{value:.1f}"
    if size_of >= 0.00995 or size_of == 0:
        return f"{value:.2f}" if size_of else "0"
    return f"{value:.3f}" if size_of >= 0.0005 else "<0.001"


def plural(number: int, noun: str) -> str:
    """``1 core``, ``2 cores``, ``2 processes``."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "x")) else "s"
    return f"{number} {noun}{ending}"


def ms_text(value_ms: float) -> str:
    """Milliseconds as ``41.5 ms``; from ten seconds on as ``12.3 s``."""
    return f"{number_text(value_ms / 1000)} s" if value_ms >= 10_000 else f"{number_text(value_ms)} ms"


def percent(ratio: float, digits: int = 0) -> str:
    """A ratio (0..1) as ``62 %``; a ratio above 0 is never shown as 0 (``<1 %``)."""
    if ratio > 0 and float(f"{ratio * 100:.{digits}f}") == 0:
        return f"<{10**-digits:.{digits}f} %"
    return f"{ratio * 100:.{digits}f} %"


def duration_text(value_s: float) -> str:
    """Seconds as ``0.4s``, ``12s``, ``3m12s``, ``2h05m``, ``3d04h``."""
    if value_s < 9.95:
        return f"{max(value_s, 0.0):.1f}s"
    whole = int(value_s + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def size_text(value_bytes: float) -> str:
    """Bytes as ``512 B``, ``62 MiB``, ``21.4 GiB``: one unit for memory everywhere."""
    value = float(value_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit in ("B", "KiB", "MiB") and value >= 10 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def kernel_name(name: str, most: int = 100) -> str:
    """A kernel by the name that people know, cut between arguments of its template.

    ``reduce_kernel<128, 4, ReduceOp<float, …>>``, of ``void at::native::reduce_kernel<128, 4, at::native::...>(...)``:
    without its parameters, and the namespaces that most have.
    """
    text, opened, end = _EVERYWHERE.sub("", name), 0, None
    for at, char in enumerate(text):
        opened += (char == "<") - (char == ">")
        if char == "(" and not opened and not text[:at].endswith((" ", "operator")):
            end = at
            break
    text = text[:end]
    if len(text) <= most and (opened <= 0 or not text.endswith("…")):
        return text
    kept = text[: most - 1].removesuffix("…")
    opened = kept.count("<") - kept.count(">")
    return kept + "…" if opened <= 0 else kept[: max(kept.rfind("<"), kept.rfind(", ") + 1) + 1] + "…" + ">" * opened


STRING_OR_COMMENT = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|#.*""")


def without_comment(source: str) -> str:
    """A line of code without the comment at its end."""
    return STRING_OR_COMMENT.sub(r"\1", source).rstrip() if "#" in source else source


class CodeLine(Protocol):
    """A line of code: a place, a frame, or any record that names one."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def function(self) -> str: ...


class SourceLine(CodeLine, Protocol):
    """A line of code with its text."""

    @property
    def source(self) -> str: ...


def code_place(at: CodeLine) -> str:
    """``train.py:44``: the file's name without its folders; no line if it is unknown."""
    name = plain(at.file.rsplit("/", 1)[-1]) or "?"
    return f"{name}:{at.line}" if at.line > 0 else name


def full_place(at: CodeLine) -> str:
    """``/home/me/train.py:44``."""
    return f"{plain(at.file)}:{at.line}"


def function_text(function: str) -> str:
    """``main()``; code that is in no function as Python calls it: ``<module>``."""
    return f"{plain(function)}()" if function and not function.startswith("<") else plain(function)


def at(place: CodeLine) -> str:
    """The place as ``main() train.py:44``; code outside all functions is ``train.py:44``."""
    return f"{'' if place.function.startswith('<') else function_text(place.function)} {code_place(place)}".lstrip()
