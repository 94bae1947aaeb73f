"""The page of a rule over the panes: what a verdict means, how sure it is, what to do."""

from __future__ import annotations

from tuimon.diagnosis.explain.page import Page, page_of
from tuimon.views.explain_parts import Block, Heading, Item, Paragraph, code_tokens, parts_of
from tuimon.views.finding_text import rule_title
from tuimon.views.tui.drawing.lines import Line, hanging, line, paragraph
from tuimon.views.tui.sheets.sheet import Sheet

#: Kind of a token -> role.
_ROLES = {"comment": "dim", "keyword": "backward", "string": "optimizer", "number": "data", "name": "forward"}


def page_lines(page: Page, width: int) -> list[Line]:
    """The page, wrapped."""
    rows: list[Line] = []
    before: object = None
    for part in parts_of(page):
        if rows and not isinstance(before, Heading) and not (isinstance(part, Item) and isinstance(before, Item)):
            rows.append(())
        before = part
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
