"""``tuimon report``: sum up a log."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tuimon.cli.options import parser_of
from tuimon.errors import TuimonError
from tuimon.sources.log import find_log, read_log
from tuimon.text import plain
from tuimon.views.report.summary import Json, fold, report_of
from tuimon.views.report.write import as_json, as_text

_DOC = """\
Sum up recorded sessions: steps, phases, findings, over the whole run without its warm-up.
JSON is one object for one LOG, a list of such objects for several."""


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    parser = parser_of("report", _DOC)
    parser.add_argument("logs", nargs="+", metavar="LOG", help="what --log has written; in a folder, the newest log")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to stdout")
    parsed = parser.parse_args(argv)
    reports = [_report(find_log(path)) for path in parsed.logs]
    _write(as_json(reports) if parsed.format == "json" else as_text(reports), parsed.output)
    return 0


def _report(path: str) -> dict[str, Json]:
    session, findings = fold(read_log(path))
    return report_of(session, findings, path)


def _write(text: str, path: str | None) -> None:
    if path is None or path == "-":
        sys.stdout.write(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        folder = os.path.dirname(path) or "."
        hint = None if os.path.isdir(folder) else f"Make the folder first: mkdir -p {plain(folder)}"
        raise TuimonError(f"{plain(path)} cannot be written: {error.strerror}", hint) from error
