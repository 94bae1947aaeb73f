"""Reports as text and JSON, whole or brief enough for programs to take in at once, and files of the report now."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import msgspec
from msgspec import UNSET

from tuimon.diagnosis.finding import Finding
from tuimon.new_files import write_new
from tuimon.session.session import Session
from tuimon.views.json_text import compact_json, with_digits
from tuimon.views.report.report import report_of
from tuimon.views.report.text import text_report
from tuimon.views.report_types import Report

#: Significant digits of numbers in JSON: more than any of them is measured to, and shares still add to 1.
DIGITS = 5
#: Textual's SVG loads a font from a public server.
_FONTS = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)
#: A clip a line and a reference to it in each piece of text: the pieces have their lengths anyway.
_LINE_CLIPS = re.compile(r'\s*<clipPath id="[\w-]+-line-\d+">.*?</clipPath>', re.DOTALL)
_CLIPPED = re.compile(r' clip-path="url\(#[\w-]+-line-\d+\)"')
_BLANK = re.compile(r"<text [^>]*>(?:&#160;|\s)*</text>\n?")
_ID = re.compile(r"terminal-\d+-")

#: The size of one report in bytes: about 2,000 tokens of a language model.
MOST_BYTES = 6000
#: A list, and to how many rows it may be cut, in turn; 0 leaves it empty.
_Cut = tuple[Callable[[Report], Iterator[Any]], str, tuple[int, ...]]  # Any: what holds the list


def as_json(reports: Sequence[Report], *, full: bool = False) -> str:
    """One object for one report, a list of such objects for several; brief unless ``full``."""
    shown = [_rounded(report if full else brief(report)) for report in reports]
    return compact_json(shown[0] if len(shown) == 1 else shown)


def _rounded(report: Report) -> dict[str, Any]:  # Any: JSON
    rounded: dict[str, Any] = with_digits(msgspec.to_builtins(report), DIGITS)
    return rounded


def as_text(reports: Sequence[Report]) -> str:
    """The reports under one another, a line between them."""
    return ("=" * 78 + "\n").join(text_report(report) for report in reports)


def save(session: Session, findings: Sequence[Finding], stem: str, svg: str) -> list[str]:
    """Write ``STEM.json``, ``STEM.txt`` and the screenshot ``STEM.svg`` as new files; their paths. Raises OSError."""
    report = report_of(session, findings, log="")
    return write_new(
        stem, {".json": as_json([report], full=True), ".txt": as_text([report]), ".svg": standalone_svg(svg)}
    )


def standalone_svg(svg: str) -> str:
    """A picture by Textual's ``export_screenshot``, with fonts of the reader's machine alone."""
    for pattern in (_FONTS, _LINE_CLIPS, _CLIPPED, _BLANK):
        svg = pattern.sub("", svg)
    svg = _ID.sub("t-", svg).replace("&#160;", "\N{NO-BREAK SPACE}")
    return svg.replace("Fira Code, monospace", "'Fira Code', 'DejaVu Sans Mono', Menlo, Consolas, monospace")


def brief(report: Report, most_bytes: int = MOST_BYTES) -> Report:
    """The report in at most so many bytes, where possible; ``left_out`` counts the rows that each list lacks.

    Never cut are the fields of the contract: ``run``, ``steps``, ``phases`` and ``findings``. At least one rank stays.
    """
    if size(report) <= most_bytes:
        return report
    report = deepcopy(report)
    for rank in report.ranks:
        for phase in rank.phases:  # those of the report as a whole stay as they are
            phase.gpu_idle_ms_per_step = phase.estimated = phase.error = UNSET
            phase.gpu_idle_ms_low = phase.gpu_idle_ms_high = None
    for holders, name, counts in _CUTS:
        for most in counts:
            if size(report) <= most_bytes:
                return report
            for holder in holders(report):
                rows = getattr(holder, name)
                if len(rows) > most:
                    report.left_out[name] = report.left_out.get(name, 0) + len(rows) - most
                    if name == "ranks":  # those that are not well, or hold the others up most, in the order they had
                        worst = {id(rank) for rank in sorted(rows, key=lambda rank: rank.trouble)[:most]}
                        rows = [rank for rank in rows if id(rank) in worst]
                    setattr(holder, name, rows[:most])
    return report


def size(report: Report) -> int:
    """Its bytes as it is written."""
    return len(compact_json(_rounded(report)).encode())


def _each(name: str) -> Callable[[Report], Iterator[Any]]:
    """The rows of this list."""
    return lambda report: iter(getattr(report, name))


def _top(report: Report) -> Iterator[Report]:
    yield report


def _run(report: Report) -> Iterator[Any]:
    yield report.run


def _lone_rank(report: Report) -> Iterator[Any]:
    """A rank that is alone: its phases are those of the report."""
    return iter(report.ranks[:1] if len(report.ranks) == 1 else ())


#: The least important first.
_CUTS: tuple[_Cut, ...] = (
    (_each("traces"), "text", (6,)),
    (_each("traces"), "operators", (3, 0)),
    (_each("traces"), "kernels", (3, 0)),
    (_each("traces"), "syncs", (3, 0)),
    (_each("memory"), "lines", (3, 0)),
    (_top, "traces", (1,)),
    (_top, "memory", (1,)),
    (_each("trainings"), "findings", (1,)),
    (_top, "trainings", (4,)),
    (_top, "ranges", (12, 4)),
    (_lone_rank, "phases", (0,)),
    (_top, "ranks", (16, 8, 4)),
    (_run, "nodes", (8, 2)),
    (_top, "standstills", (1,)),
    (_each("standstills"), "groups", (8, 3)),
    (_top, "changes", (8, 2)),
    (_run, "notices", (3, 1)),
    (_run, "survivors", (4,)),
    (_top, "unjudged", (4, 2, 0)),
    (_top, "ranks", (1,)),
    (_top, "unjudged", (0,)),
    (_top, "changes", (0,)),
)
