"""Reports as text and JSON, whole or brief enough for a language model, and files of the report at this moment."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
from msgspec import structs

from tuimon.diagnosis.verdicts import Verdicts
from tuimon.new_files import free_name
from tuimon.sources.outputs import output_file
from tuimon.views.json_text import json_text, with_digits
from tuimon.views.report.report import report_of
from tuimon.views.report.text import text_report
from tuimon.views.report_types import Report

#: Significant digits of numbers in JSON: more than any of them is measured to, and shares still add to 1.
DIGITS = 5
#: Textual's SVG loads a font from a public server.
_FONTS = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)
#: Textual's clip path for each line, and the references to it: each piece of text has its length anyway.
_LINE_CLIPS = re.compile(r'\s*<clipPath id="[\w-]+-line-\d+">.*?</clipPath>', re.DOTALL)
_CLIPPED = re.compile(r' clip-path="url\(#[\w-]+-line-\d+\)"')
_BLANK = re.compile(r"<text [^>]*>(?:&#160;|\s)*</text>\n?")
_ID = re.compile(r"terminal-\d+-")

#: The size of a brief report in bytes: about 2,000 tokens of a language model.
MOST_BYTES = 6000
#: Rows kept of each list, fewer until the size fits; lists and structs that are never cut; fields kept of a rank.
_ROWS = (16, 8, 4, 2, 1, 0)
_WHOLE = frozenset(("command", "evidence", "facts", "findings", "median_ms", "notices", "parts", "phases", "steps"))
_OF_RANK = ("pid", "host", "rank", "world_size", "markers", "gpus", "steps", "state", "late_ms", "wait_ms", "training")


def as_json(reports: Sequence[Report], *, is_brief: bool = False) -> str:
    """One object for one report, a list of such objects for several."""
    shown = [brief(report) if is_brief else _rounded(report) for report in reports]
    return json_text(shown[0] if len(shown) == 1 else shown, None if is_brief else 1)


def brief(report: Report) -> dict[str, Any]:  # Any: JSON
    """The report in 6 kB, if possible; ``left_out`` counts the rows that each list lacks.

    Never cut are ``steps``, ``phases`` and ``findings`` of the contract. The phases of each rank, the counters of GPUs
    and tuimon's own cost are always left out.
    """
    ordered = structs.replace(report, gpus=[], cost=None, ranks=sorted(report.ranks, key=lambda rank: rank.trouble))
    whole = _rounded(ordered)
    whole["ranks"] = [{key: rank[key] for key in _OF_RANK if key in rank} | {"phases": []} for rank in whole["ranks"]]
    for most in _ROWS:
        left_out: Counter[str] = Counter()
        shown: dict[str, Any] = _cut(whole, "", most, left_out) | ({"left_out": left_out} if left_out else {})
        if len(json_text(shown).encode()) <= MOST_BYTES:
            break
    return shown


def _cut(value: Any, name: str, most: int, left_out: Counter[str]) -> Any:  # noqa: ANN401  (JSON)
    if name in _WHOLE:
        return value
    if isinstance(value, dict):
        return {key: _cut(each, key, most, left_out) for key, each in value.items()}
    if isinstance(value, list):
        most = max(most, name == "ranks")  # at least one rank stays
        left_out.update({name: len(value[most:])} if value[most:] else {})
        return [_cut(each, "", most, left_out) for each in value[:most]]
    return value


def _rounded(report: Report) -> dict[str, Any]:  # Any: JSON
    rounded: dict[str, Any] = with_digits(msgspec.to_builtins(report), DIGITS)
    return rounded


def as_text(reports: Sequence[Report]) -> str:
    """The reports under one another, a line between them."""
    return ("=" * 78 + "\n").join(text_report(report) for report in reports)


def save(verdicts: Verdicts, stem: str, svg: str) -> list[str]:
    """Write ``STEM.json``, ``STEM.txt`` and the screenshot ``STEM.svg`` as new files; their paths. Raises TuimonError.

    Like the report of a log, they cover the run so far, and not its last seconds as the screen does.
    """
    report = report_of(verdicts.session, verdicts.judge_run(), changes=verdicts.changes)
    files = {".json": as_json([report]), ".txt": as_text([report]), ".svg": standalone_svg(svg)}
    name = free_name(stem, *files)
    with ExitStack() as whole:  # none gets its name before all are written
        for ending, text in files.items():
            file = whole.enter_context(output_file(name + ending))
            file.write(text.encode())
            file.flush()
    return [name + ending for ending in files]


def standalone_svg(svg: str) -> str:
    """A picture by Textual's ``export_screenshot``, with fonts of the reader's machine alone."""
    for pattern in (_FONTS, _LINE_CLIPS, _CLIPPED, _BLANK):
        svg = pattern.sub("", svg)
    svg = _ID.sub("t-", svg).replace("&#160;", "\N{NO-BREAK SPACE}")
    return svg.replace("Fira Code, monospace", "'Fira Code', 'DejaVu Sans Mono', Menlo, Consolas, monospace")
