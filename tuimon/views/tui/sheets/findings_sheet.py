"""The sheet of findings: everything about each, live, with the code that it names; and the page of a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.worker import Worker, WorkerState

from tuimon.diagnosis.explain.page import Page, page_of
from tuimon.diagnosis.judging import unjudged
from tuimon.records import Place
from tuimon.session.goodput import goodput
from tuimon.views.explain import Block, Heading, Item, Paragraph, code_tokens, spaced_parts
from tuimon.views.finding_text import rule_title
from tuimon.views.goodput_text import goodput_bar, goodput_text
from tuimon.views.tui.drawing.charts import layers
from tuimon.views.tui.drawing.lines import Line, hanging, line, paragraph
from tuimon.views.tui.sheets.code_around import Code, CodeAround
from tuimon.views.tui.sheets.finding_lines import AROUND, changes_lines, findings_lines, first_lines, unjudged_lines
from tuimon.views.tui.sheets.sheet import Sheet

if TYPE_CHECKING:
    from tuimon.monitor.monitor import Monitor
    from tuimon.session.session import Session


class FindingsSheet(Sheet):
    """Findings first, then how the verdict changed, then what could not be judged; files are read off this thread.

    One finding is chosen: Tab goes to the next, Enter explains its rule.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "dismiss", show=False),
        Binding("enter", "explain", show=False),
        Binding("tab", "choose(1)", show=False),
        Binding("shift+tab", "choose(-1)", show=False),
    ]

    def __init__(self, monitor: Monitor) -> None:
        super().__init__("Findings · Tab chooses, Enter explains", self.sheet_lines)
        self._monitor = monitor
        self._code = CodeAround(self, monitor.closeup)
        self._chosen: str | None = None  # None: the first

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Code was read."""
        if event.state in (WorkerState.SUCCESS, WorkerState.ERROR):
            self.update()

    def action_explain(self) -> None:
        """Open the page of the chosen finding's rule."""
        if self._monitor.findings:
            chosen = self._monitor.findings[self._index()]
            self.app.push_screen(ExplainSheet(chosen.rule, chosen.cause))

    def action_choose(self, further: int) -> None:
        """Choose the next or the one before, and bring it into view."""
        rules = self._rules()
        if not rules:
            return
        index = (self._index() + further) % len(rules)
        self._chosen = rules[index]
        lines = findings_lines(self._monitor.findings, self.body.content_size.width, self._code_of, self._chosen)
        self.body.show_from(first_lines(lines)[index])

    def _rules(self) -> list[str]:
        return [finding.rule for finding in self._monitor.findings]

    def _index(self) -> int:
        rules = self._rules()
        return rules.index(self._chosen) if self._chosen in rules else 0

    def sheet_lines(self, width: int) -> list[Line]:
        """All that the sheet shows, at this width."""
        monitor = self._monitor
        chosen = self._rules()[self._index()] if monitor.findings else None
        parts = (
            findings_lines(monitor.findings, width, self._code_of, chosen),
            _goodput_lines(monitor.session, width),
            changes_lines(monitor.changes, monitor.session.start_s, width),
            unjudged_lines(unjudged(monitor.session), width),
        )
        lines: list[Line] = []
        for part in parts:
            lines += [(), *part] if lines and part else part
        return lines

    def _code_of(self, where: Place) -> Code:
        """The code around a place; its process is not known: the first trainer must read it, and all be younger."""
        processes = self._monitor.session.processes()
        starts = [process.start_unix_s for process in processes]
        read = self._code.of(where.file, where.line, next(iter(processes), None), min(starts, default=None))
        return read or self._monitor.session.trie.lines_near(where.file, where.line, AROUND)


def _goodput_lines(session: Session, width: int) -> list[Line]:
    """A stacked bar of the wall time, and its parts by name."""
    divided = goodput(session)
    if divided is None:
        return []
    bar = layers([(share, "━", colour) for _, share, colour in goodput_bar(divided)], width)
    return [bar, *paragraph(f"Goodput: {goodput_text(divided)}", width, "dim")]


#: Kind of a token -> role.
_ROLES = {"comment": "dim", "keyword": "backward", "string": "optimizer", "number": "data", "name": "forward"}


def page_lines(page: Page, width: int) -> list[Line]:
    """The page, wrapped."""
    rows: list[Line] = []
    for part, is_apart in spaced_parts(page):
        if rows and is_apart:
            rows.append(())
        match part:
            case Heading(text):
                rows.append(line((text, "strong")))
            case Paragraph(text):
                rows += paragraph(text, width, "text", indent=1)
            case Item(name, text):
                rows += hanging(line(" ", (f"{name}  " if name else "· ", "key")), text, width)
            case Block():
                rows += _code_rows(part)
    return rows


def _code_rows(block: Block) -> list[Line]:
    mark = "benign" if block.label == "after" else "warning"
    rows = [line(" ", (f" {block.label} ", f"{mark} badge"))]
    for tokens in code_tokens(block.code, block.language):
        rows.append(line(("  ▏ ", mark), *((text, _ROLES.get(kind, "text")) for text, kind in tokens)))
    return rows


class ExplainSheet(Sheet):
    """One rule's page; it does not change while it is open."""

    def __init__(self, rule: str, cause: str | None = None) -> None:
        page = page_of(rule, cause)
        super().__init__(f"{rule_title(rule)}: {page.title}", lambda width: page_lines(page, width))
