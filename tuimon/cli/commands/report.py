"""``tuimon report``: sum up a log."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tuimon.cli.options import add_run_choice, finding_name, parser_of
from tuimon.cli.quick_start import collect_seldom
from tuimon.cli.writing import Output, add_output
from tuimon.diagnosis.finding import Finding, VerdictChange
from tuimon.diagnosis.verdicts import Verdicts, fold
from tuimon.errors import UsageError
from tuimon.session.session import Session
from tuimon.sources.log.runs import Chosen, choose
from tuimon.sources.log.source import LogSource
from tuimon.text import plain
from tuimon.views.finding_text import headline_text
from tuimon.views.report.report import report_of
from tuimon.views.report.write import as_json, reports_text
from tuimon.views.report_types import Report

_DOC = """\
Sum up recorded sessions: steps, phases, findings, over the whole run without its warm-up.
JSON is one object for one LOG, a list of such objects for several; HTML is one self-contained page."""


def main(argv: Sequence[str]) -> int:
    """Run the command; 1 when a finding has one of the names of ``--fail-on``."""
    parsed = _parser().parse_args(argv)
    if parsed.brief and parsed.format != "json":
        raise UsageError("--brief cuts JSON", "Add --format json")
    collect_seldom()
    logs = [choose(path, parsed.run) for path in parsed.logs]
    output = Output(parsed)
    reports: Sequence[Report]
    if parsed.format == "html":
        from tuimon.views.report.page import as_html, html_page

        pages = [html_page(*_judged(log)) for log in logs]
        reports = [page.report for page in pages]
        output.write(as_html(pages))
    else:
        reports = [report_of(*_judged(log)) for log in logs]
        output.write(as_json(reports, is_brief=parsed.brief) if parsed.format == "json" else reports_text(reports))
    return _exit_code(reports, parsed.fail_on)


def _judged(log: Chosen) -> tuple[Session, list[Finding], str, Sequence[VerdictChange]]:
    verdicts = Verdicts()
    session, findings = fold(LogSource(log).read_all(), verdicts)
    return session, findings, log.path, verdicts.changes


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("report", _DOC)
    parser.add_argument(
        "logs", nargs="+", metavar="LOG", help="what --log has written; in a folder, the latest run with all nodes"
    )
    add_run_choice(parser)
    parser.add_argument("--format", choices=("text", "json", "html"), default="text")
    parser.add_argument(
        "--brief",
        action="store_true",
        help="cut JSON to 6 kB, for a language model: all steps, phases and findings, the first rows of other lists",
    )
    add_output(parser)
    parser.add_argument(
        "--fail-on",
        type=_condition,
        default=(),
        metavar="NAME,...",
        help="exit with code 1 when a finding has one of these rules (input_bound), causes (no_workers) or severities"
        " (critical, warning); the findings go to stderr",
    )
    return parser


def _condition(text: str) -> tuple[str, ...]:
    names = tuple(finding_name(name.strip()) for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("a rule, a cause or a severity is missing")
    return names


def _exit_code(reports: Sequence[Report], names: Sequence[str]) -> int:
    """1 if a finding has one of these names, 0 otherwise; such findings are printed to stderr."""
    failed = 0
    for report in reports:
        for each in report.findings:
            hit = next((name for name in names if name in (each.rule, each.cause, each.severity)), None)
            if hit is not None:
                failed = 1
                log, headline = plain(report.run.log), headline_text(each)
                print(f"tuimon report: {log}: {hit}: {each.rule} ({each.severity}): {headline}", file=sys.stderr)
    return failed
