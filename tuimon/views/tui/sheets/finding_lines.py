"""All findings in full: what each rests on and where, how the verdict changed, and what could not be judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tuimon.records import Place
from tuimon.views.evidence_text import evidence_rows, share_text
from tuimon.views.finding_text import fix_text, rule_title, rules_by_reason, speedup
from tuimon.views.format import count, duration, place, plain
from tuimon.views.tui.drawing.lines import Line, column, hanging, line, paragraph
from tuimon.views.tui.sheets.code_around import Code, code_lines

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.diagnosis.hysteresis import Change
    from tuimon.diagnosis.unjudged import Unjudged

_NAME = 20
_AROUND = 2  # lines of code before and after the one that is named
_CHANGES = 20


def no_code(_where: Place) -> Code:
    """For where code cannot be read."""
    return ()


def findings_lines(
    findings: Sequence[Finding],
    width: int,
    code_of: Callable[[Place], Code] = no_code,
    chosen: str | None = None,
) -> list[Line]:
    """All findings whole: headline, action, gain, places with their code, evidence; the ``chosen`` rule is marked."""
    if not findings:
        return [line(("No rule has found anything.", "dim"))]
    rows: list[Line] = []
    for finding in findings:
        cause = f"  {_words(finding.cause)}" if finding.cause else ""
        mark = line(("▸", "key bold")) if finding.rule == chosen else ()
        rows.append((*mark, *line((f" {rule_title(finding.rule)} ", f"{finding.severity} badge"), (cause, "text"))))
        rows += paragraph(plain(finding.headline), width, finding.severity, indent=1)
        rows += paragraph(f"→ {plain(finding.action)}", width, "strong", indent=1) if finding.action else []
        rows += _figures(finding)
        for fix in finding.other_fixes:
            rows += paragraph(f"→ or {fix_text(*fix[:4])}", width, "text", indent=1)
        for where in finding.where:
            rows += _where(where, code_of(where) if where is finding.where[0] else ())
        rows += [_fact(*row) for row in evidence_rows(finding.evidence)]
        rows.append(())
    return rows[:-1]


def first_lines(rows: Sequence[Line]) -> list[int]:
    """The index of each finding's first line among ``findings_lines``."""
    return [index for index, row in enumerate(rows) if any(span.role.endswith(" badge") for span in row)]


def changes_lines(changes: Sequence[Change], start_s: float | None, width: int) -> list[Line]:
    """When the verdict changed and from what to what, the latest first; nothing where it never did."""
    if not changes:
        return []
    rows = [line(("What changed", "strong"), (", the latest first", "dim"))]
    for change in sorted(changes, key=lambda change: -change.t_s)[:_CHANGES]:
        since = duration(change.t_s - start_s) if start_s is not None else ""
        step = f"step {count(change.step)}" if change.step is not None else ""
        head = line(" ", (column(since, 8), "dim"), (column(step, 14), "dim"))
        words = f"{verdict_name(change.before)} → {verdict_name(change.after)}"
        rows += hanging(head, words, width)
    return rows


def unjudged_lines(missing: Sequence[Unjudged], width: int) -> list[Line]:
    """Which rules had nothing to judge by, by the reason why; nothing where all could judge."""
    if not missing:
        return []
    rows = [line(("Could not be judged", "strong"))]
    for reason, rules in rules_by_reason(missing).items():
        rows += paragraph(plain(reason), width, "text", indent=1)
        rows += paragraph(", ".join(_words(rule, "-") for rule in rules), width, "dim", indent=3)
    return rows


def verdict_name(name: str | None) -> str:
    """``input_bound/no_workers`` as people read it: ``input-bound (no workers)``."""
    if name is None:
        return "nothing found"
    rule, _, cause = name.partition("/")
    return _words(rule, "-") + (f" ({_words(cause)})" if cause else "")


def _words(name: str, gap: str = " ") -> str:
    return plain(name).replace("_", gap)


def _figures(finding: Finding) -> list[Line]:
    rows = []
    if gain := speedup(finding):
        rows.append(_fact("estimated gain", f"{gain} faster", "benign bold"))
    if finding.share_of_step is not None:
        rows.append(_fact("share of step", share_text(finding.share_of_step, finding.evidence), finding.severity))
    return rows


def _where(where: Place, code: Code) -> list[Line]:
    """A place, with the lines around it where they can be read; else with the line that the samples brought."""
    rows = [_fact("where", f"{place(where.file, where.line)}  {plain(where.function)}()")]
    near = [(n, text) for n, text in code if abs(n - where.line) <= _AROUND]
    if near:
        return rows + [(*line(" " * (_NAME - 3)), *row) for row in code_lines(near, where.line)]
    return rows + ([_fact("", plain(where.source).strip(), "key")] if where.source else [])


def _fact(name: str, value: str, role: str = "text") -> Line:
    return line(" ", (column(name, _NAME), "dim"), (value, role))
