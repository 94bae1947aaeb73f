"""Reports as text and JSON, and files of the report at this moment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tuimon.diagnosis.finding import Finding
from tuimon.new_files import write_new
from tuimon.session.session import Session
from tuimon.views.json_text import compact_json, with_digits
from tuimon.views.report.brief import brief
from tuimon.views.report.step_json import Json
from tuimon.views.report.summary import report_of
from tuimon.views.report.text import text_report

#: Significant digits of numbers in JSON: more than any of them is measured to, and shares still add to 1.
DIGITS = 7
#: Textual's SVG loads a font from a public server.
_FONTS = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)
#: A clip a line and a reference to it in each piece of text: the pieces have their lengths anyway.
_LINE_CLIPS = re.compile(r'\s*<clipPath id="[\w-]+-line-\d+">.*?</clipPath>', re.DOTALL)
_CLIPPED = re.compile(r' clip-path="url\(#[\w-]+-line-\d+\)"')
_BLANK = re.compile(r"<text [^>]*>(?:&#160;|\s)*</text>\n?")
_ID = re.compile(r"terminal-\d+-")


def as_json(reports: Sequence[dict[str, Json]], *, full: bool = False) -> str:
    """One object for one report, a list of such objects for several; brief unless ``full``."""
    rounded = [with_digits(report, DIGITS) for report in reports]
    shown = [report if full else brief(report) for report in rounded]
    return compact_json(shown[0] if len(shown) == 1 else shown)


def as_text(reports: Sequence[dict[str, Json]]) -> str:
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
