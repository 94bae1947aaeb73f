"""The sheet of findings: everything about each finding, live, with the code that it names; and the page of a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from tuimon.diagnosis.explain.page import page_of
from tuimon.diagnosis.judging import unjudged
from tuimon.records import Place
from tuimon.text import function_text
from tuimon.views.finding_text import evidence_rows, gain_text, rule_title, rules_by_reason, sentence, verdict_name
from tuimon.views.format import ABSENT, count, duration, plain
from tuimon.views.report.report import parts_of
from tuimon.views.run_text import goodput_bar
from tuimon.views.tui.drawing.charts import layers
from tuimon.views.tui.drawing.lines import (
    MIN_TEXT,
    Line,
    apart,
    column,
    hanging,
    justified,
    line,
    line_width,
    paragraph,
    place_span,
    wrapped,
)
from tuimon.views.tui.drawing.moving import Rows
from tuimon.views.tui.drawing.pages import page_lines
from tuimon.views.tui.drawing.palette import SEVERITY_WORDS
from tuimon.views.tui.sheets.sheet import CodeAround, CodeLines, Sheet, code_lines

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding, Unjudged, VerdictChange
    from tuimon.monitor.monitor import Monitor


class FindingsSheet(Sheet):
    """Findings first, then the changes of the verdict, then the rules that could not judge; files are read on another
    thread.

    One finding is chosen: Tab goes to the next, Enter explains its rule, o opens its place, y copies it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "dismiss", show=False),
        Binding("enter", "explain", show=False),
        Binding("o", "app.edit", show=False),
        Binding("y", "app.copy", show=False),
        Binding("tab", "choose(1)", show=False),
        Binding("shift+tab", "choose(-1)", show=False),
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__("Findings · Tab chooses, Enter explains, o opens, y copies", self.sheet_lines)
        self._monitor = monitor
        self._code = CodeAround(self, monitor.closeup, self.text.update)
        self.rows: Rows[Finding] = Rows(lambda finding: finding.rule)

    def action_explain(self) -> None:
        """Open the page of the chosen finding's rule."""
        chosen = self.rows.selected
        if chosen is not None:
            page = page_of(chosen.rule, chosen.cause)
            self.app.push_screen(Sheet(f"{rule_title(chosen.rule)}: {page.title}", partial(page_lines, page)))

    def action_choose(self, further: int) -> None:
        """Choose the next or the previous finding, and bring it into view."""
        rows = self.rows.rows
        if rows:
            self.rows.select(rows[(self.rows.index + further) % len(rows)])
            self.update()
            self.call_after_refresh(self._scroll_to_chosen)

    def _scroll_to_chosen(self) -> None:
        badges = [y for y, row in enumerate(self.text.lines) if any(span.role.endswith(" badge") for span in row)]
        if self.rows.index < len(badges):  # one above each finding; two columns have no room for them
            self.body.scroll_to(y=badges[self.rows.index])

    def sheet_lines(self, width: int) -> list[Line]:
        monitor, now = self._monitor, parts_of(self._monitor.session.shown())
        self.rows.rows = monitor.findings
        chosen = self.rows.selected
        goodput: list[Line] = []
        if now.goodput is not None:
            bar = layers([(share, "━", colour) for _, share, colour in goodput_bar(now.goodput)], width)
            goodput = [bar, *paragraph(f"Goodput: {now.goodput.text}", width, "dim")]
        parts = (
            findings_lines(monitor.findings, width, self._code_of, chosen.rule if chosen is not None else None),
            goodput,
            changes_lines(monitor.verdicts.changes, width),
            unjudged_lines(unjudged(now.session), width),
        )
        return apart(parts)

    def _code_of(self, where: Place) -> CodeLines:
        """The code around a place, read as the first process could."""
        session = self._monitor.session
        pid = next((process.pid for process in session.processes()), 0)
        return self._code.of(where, 1, session, pid)


def findings_lines(
    findings: Sequence[Finding],
    width: int,
    code_of: Callable[[Place], CodeLines] = lambda _: (),
    chosen: str | None = None,
) -> list[Line]:
    """All findings in full: headline, places with their code, fixes with their gains, why, how sure, figures.

    The ``chosen`` rule is marked; why and how sure, from a rule's page, are shown for it, or else for the first.
    """
    if not findings:
        return [line(("No rule has found anything.", "dim"))]
    rows: list[Line] = []
    for finding in findings:
        explained = finding.rule == (chosen or findings[0].rule)
        rows += _head(finding, width, marked=finding.rule == chosen)
        for where in finding.where:
            rows += _place_lines(where, code_of(where) if where is finding.where[0] else (), width)
        rows += _fixes(finding, width)
        rows += _explanation(finding, width) if explained else []
        figures = evidence_rows(finding.evidence)
        rows += [(), line((" Figures", "dim"))] if figures else []
        names = max((cell_len(name) for name, _ in figures), default=0) + 2
        rows += [line(" ", (column(name, names), "dim"), (value, "text")) for name, value in figures]
        rows += [(), ()]
    return rows[:-2]


def _head(finding: Finding, width: int, *, marked: bool) -> list[Line]:
    """Name, cause and severity in a row, the headline below."""
    cause = f"  {_words(finding.cause)}" if finding.cause else ""
    mark = line(("▸", "key bold")) if marked else ()
    left = (*mark, *line((f" {rule_title(finding.rule)} ", f"{finding.severity} badge"), (cause, "text")))
    right = line((f"{SEVERITY_WORDS[finding.severity]} ", finding.severity))
    fits = line_width(left) + line_width(right) < width
    return [
        justified(left, right if fits else (), width),
        *paragraph(plain(finding.headline), width, "strong", indent=1),
    ]


def _fixes(finding: Finding, width: int) -> list[Line]:
    """A row for each fix: the advice and the gain; the gain below it if columns have no room."""
    fixes = finding.fixes
    if not fixes:
        return []
    gains = [gain_text(fix) or ABSENT for fix in fixes]
    gain = max(map(cell_len, [*gains, "gain"])) + 2
    room = width - 1 - gain
    if room < 3 * MIN_TEXT:
        rows: list[Line] = [(), line((" Fix", "dim"))]
        for fix, gained in zip(fixes, gains, strict=True):
            rows += [*paragraph(plain(fix.action), width, "text", indent=1), line("   ", (gained, _gain_role(gained)))]
        return rows
    rows = [(), line((f" {column('Fix', room)}{column('gain', gain, '>')}", "dim"))]
    for number, (fix, gained) in enumerate(zip(fixes, gains, strict=True)):
        first, *more = wrapped(plain(fix.action), room) or [""]
        action = (column(first, room), "strong" if number == 0 else "text")
        rows.append(line(" ", action, (column(gained, gain, ">"), _gain_role(gained))))
        rows += [line("   ", (row, "text")) for row in wrapped(" ".join(more), room - 2)]
    return rows


def _gain_role(gained: str) -> str:
    return "dim" if gained == ABSENT else "benign bold"


def _explanation(finding: Finding, width: int) -> list[Line]:
    """The meaning of the verdict and how sure it is, from its page."""
    page = page_of(finding.rule)
    meaning = f"{page.meaning} {sentence(page.causes.get(finding.cause or '', ''))}".strip()
    rows: list[Line] = []
    for title, text in (("Why", meaning), ("How sure", page.sureness)):
        rows += [(), line((f" {title}", "dim")), *paragraph(plain(text).replace("`", ""), width, "text", indent=1)]
    return rows


def changes_lines(changes: Sequence[VerdictChange], width: int) -> list[Line]:
    """The changes of the verdict with their times, the latest first; empty if it never changed."""
    if not changes:
        return []
    rows = [line(("What changed", "strong"), (", the latest first", "dim"))]
    for change in [*reversed(changes)][:20]:
        step = f"step {count(change.step)}" if change.step is not None else ""
        head = line(" ", (column(duration(change.at_s), 8), "dim"), (column(step, 14), "dim"))
        words = f"{verdict_name(change.before)} → {verdict_name(change.after)}"
        rows += hanging(head, words, width)
    return rows


def unjudged_lines(missing: Sequence[Unjudged], width: int) -> list[Line]:
    """The rules that could not judge, grouped by the reason; empty if all could judge."""
    if not missing:
        return []
    rows = [line(("Could not be judged", "strong"))]
    for reason, rules in rules_by_reason(missing).items():
        rows += paragraph(plain(reason), width, "text", indent=1)
        rows += paragraph(", ".join(_words(rule, "-") for rule in rules), width, "dim", indent=3)
    return rows


def _words(name: str, gap: str = " ") -> str:
    return plain(name).replace("_", gap)


def _place_lines(where: Place, code: CodeLines, width: int) -> list[Line]:
    """A place with the lines around it, if these can be read; else with the line that samples have recorded."""
    spot = place_span(where, "key bold", width - 1)
    function = "" if where.function.startswith("<") else function_text(where.function)
    rows: list[Line] = [(), line(" ", spot, "  ", (function, "text"))]
    if not code and where.source:
        code = [(where.line, plain(where.source).strip())]
    return rows + code_lines(code, where.line)
