"""Every view that shows a finding whole has a line for each of its fixes; lines of text have the first three."""

from msgspec.structs import replace

from tests.views import streams
from tests.views.tui.texts import texts
from tuimon.diagnosis.finding import Fix
from tuimon.session.session import Session
from tuimon.views.headless import summary_lines
from tuimon.views.report.page import as_html
from tuimon.views.report.summary import Page, report_of
from tuimon.views.report.text import text_report
from tuimon.views.tui.sheets.finding_lines import findings_lines

FINDING = replace(
    streams.INPUT_BOUND,
    fixes=(
        *streams.INPUT_BOUND.fixes,
        Fix("halve [b]the image", 1.5, 1.0, 1.5),
        Fix("buy a disk"),
        Fix("wait longer"),
    ),
)
HALVE = "halve [b]the image (up to 1.5x faster)"


def test_reports():
    session = Session()
    report = report_of(session, [FINDING], "run.jsonl")
    assert [fix["low"] for fix in report["findings"][0]["fixes"]] == [2.13, 1.0, None, None]
    text = text_report(report)
    assert f"  Or: {HALVE}\n  Or: buy a disk\n" in text and "wait longer" not in text
    page = as_html([Page(report, session)])
    assert f"<b>Or:</b> {HALVE}" in page and "<b>Or:</b> buy a disk" in page and "<b>Or:</b> wait longer" in page


def test_the_sheet_of_findings():
    rows = [" ".join(row.split()) for row in texts(findings_lines([FINDING], 100))]
    assert {"halve [b]the image up to 1.5x faster", "buy a disk –", "wait longer –"} <= set(rows)


def test_the_summary_of_a_headless_run():
    best, gain, *others = (text.strip() for text in summary_lines(Session(), [FINDING])[-4:])
    assert (best, gain) == (f"fix: {FINDING.action}", "gain: up to 2.1x faster")
    assert others == [f"or: {HALVE}", "or: buy a disk"]
