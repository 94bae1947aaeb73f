"""The verdict in three to five rows: the bottleneck, its place, and the gain of fixing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from tuimon.records import Exit
from tuimon.text import at, code_place, function_text, plural
from tuimon.views.finding_text import ONLY_MINOR, gain_text, is_probable, only_minor, rule_title
from tuimon.views.format import plain
from tuimon.views.run_text import STATES, how_ended, survivors_text, unseen_reason
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.lines import (
    BLANK,
    MIN_TEXT,
    Line,
    Span,
    clip,
    clipped_words,
    justified,
    line,
    line_width,
    padded,
    place_span,
    wrapped,
)

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding, Severity
    from tuimon.views.report.report import Parts
    from tuimon.views.report_types import StateJson, UnseenJson

#: Fewest rows of the verdict: headline, place, fix. Headline and fix take a second row each where they need it; above
#: them one more says how a run failed.
ROWS = 3


class Verdict(NamedTuple):
    """The state of the verdict's rows."""

    findings: tuple[Finding, ...]
    state: StateJson
    inferred: bool
    exit: Exit | None
    unseen: tuple[UnseenJson, ...] = ()
    measuring_s: int | None = None  # seconds measured so far, while no verdict has held
    sampled: bool = True  # there are stack samples of the training thread
    trains: bool = True  # its steps have phases of a training
    tip: str | None = None  # advice after its end
    is_read: bool = True  # False: nothing of the log has been read yet


class _Paragraph(NamedTuple):
    """The rows without the bar at their left; ``role`` colours bar and name."""

    role: str
    name: str
    headline: str
    where: Line = ()
    fix: tuple[Line, ...] = ()


class VerdictPane(Pane[Verdict]):
    """The rows under the title; Enter opens all findings, changes of the verdict and rules that could not judge."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,down,right", "app.findings", "findings", show=False)]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.measuring_s: int | None = None  # as in the state

    def collect(self, now: Parts, findings: Sequence[Finding]) -> Verdict:
        """The findings, and the facts shown if there is none."""
        own = now.own
        return Verdict(
            findings=tuple(findings),
            state=now.state,
            is_read=now.session.header is not None,
            inferred=own.phases.inferred,
            exit=now.session.exit,
            unseen=tuple(now.unseen),
            sampled=own.pid in now.session.stacks,
            trains=not own.phases or own.phases.trains,
            tip=now.tip,
            measuring_s=self.measuring_s,
        )

    def draw(self, state: Verdict, width: int, height: int) -> list[Line]:
        wraps = height > ROWS + _has_end_row(state)
        rows = verdict_lines(state, width, wraps=wraps)[:height]
        return [(Span("▸", "key bold"), *rows[0][1:]), *rows[1:]] if self.has_focus else rows

    def rows_wanted(self, width: int, most: int) -> int:
        return len(verdict_lines(self.state, width)) if self.state is not None else ROWS

    async def on_click(self) -> None:
        """A click opens all findings too."""
        await self.run_action("app.findings")


def verdict_lines(verdict: Verdict, width: int, *, wraps: bool = True) -> list[Line]:
    """Name and headline; the place with its source line; the best fix with its gain; dim until the verdict has held.

    ``wraps``: headline and fix go on in a second row instead of being cut. How a run failed stands above them in a row
    of its own.
    """
    room = width - 4  # a space and the bar at the left, a space at the right
    block = _block(verdict, room, wraps=wraps)
    head = line((block.name, f"{block.role} bold"), "  " * bool(block.headline))
    headline, more = split_in_two(block.headline, room - line_width(head), room, wraps=wraps or not block.where)
    lines = [(*head, Span(headline, "strong")), *([line((more, "strong"))] if more else [])]
    lines += [block.where] if block.where else []
    lines += [BLANK] * (ROWS - len(lines) - max(len(block.fix), 1)) + [*block.fix]
    rows = [_bar(row, block.role) for row in padded(lines, max(len(lines), ROWS))]
    if verdict.findings and is_probable(verdict.measuring_s):
        rows = [tuple(Span(span.text, "dim") for span in row) for row in rows]
    if _has_end_row(verdict) and verdict.exit is not None:
        rows.insert(0, _bar(clip(_after_end(verdict.exit), room), _end_role(verdict.exit)))
    return rows


def split_in_two(text: str, first: int, second: int, *, wraps: bool) -> tuple[str, str]:
    """``text`` in one row of ``first`` cells and, if it ``wraps``, a further one of ``second``; cut behind a word.

    The first row ends with a clause where the second then holds the rest.
    """
    if not wraps or cell_len(text) <= first:
        return clipped_words(text, first), ""
    head = wrapped(text, first)[0]
    clause = head[: max(f"{head} ".rfind(mark) for mark in (": ", ", ", "; ")) + 1]
    if cell_len(clause) > first // 2 and cell_len(text) - cell_len(clause) <= second:
        head = clause
    return head, clipped_words(text.removeprefix(head).strip(), second)


def _bar(row: Line, role: str) -> Line:
    return (Span(" "), Span("┃ ", role), *row)


def _block(verdict: Verdict, width: int, *, wraps: bool) -> _Paragraph:
    if verdict.measuring_s is not None and not (verdict.findings and is_probable(verdict.measuring_s)):
        so_far = ": no rule sees a bottleneck yet" if is_probable(verdict.measuring_s) else " so far"
        return _Paragraph("info", "MEASURING", f"for {verdict.measuring_s} s{so_far}")
    if verdict.findings:
        return _of_findings(verdict, width, wraps=wraps)
    if verdict.exit is not None:
        end = verdict.exit
        # by ``input()``, or at a breakpoint; pickle's EOFError has another message
        reads_input = (end.last_line or "").startswith(("EOFError: EOF when reading a line", "bdb.BdbQuit"))
        tip = _NO_INPUT if reads_input else verdict.tip
        advice = (clip(line(("TIP", "dim"), ("  " + tip, "text")), width),) if tip is not None else ()
        how = how_ended(end, with_place=False).removeprefix("ended ")
        return _Paragraph(_end_role(end), "ENDED", how, clip(_after_end(end), width), advice)
    if not verdict.is_read:
        return _Paragraph("dim", "READING", "the log")
    if verdict.state.name != "training":
        texts = [each.text for each in verdict.unseen]
        if len(verdict.unseen) == 1:  # one process has both rows
            first, *rest = wrapped(unseen_reason(verdict.unseen[0]), width)
            texts = [first, " ".join(rest)]
        where, *fix = [clip(line((text, "warning")), width) for text in texts[:2]] or [BLANK]
        name = STATES[verdict.state.name]
        return _Paragraph("dim", name.upper(), verdict.state.text.removeprefix(name).strip(), where, tuple(fix))
    basis = "in the stack samples" if verdict.inferred else "in the latest steps"
    more = (line(("v", "key"), ("  what changed, and what could not be judged", "dim")),)
    if not verdict.trains:
        return _Paragraph("info", "NOTHING FOUND", "no batch, backward pass or update was seen", (), more)
    if not verdict.sampled:
        return _Paragraph("info", "NOTHING FOUND", "without stack samples few rules can judge", (), more)
    return _Paragraph("benign", "NOTHING FOUND", f"healthy: no rule sees a bottleneck {basis}", (), more)


def _of_findings(verdict: Verdict, width: int, *, wraps: bool) -> _Paragraph:
    from tuimon.diagnosis.rulebook import is_minor  # noqa: PLC0415  (with a finding the rules are loaded; the first frame has none)

    findings, first = verdict.findings, verdict.findings[0]
    probably = "probably " if verdict.measuring_s is not None else ""
    if is_minor(first):
        largest = line((clipped_words(f"largest: {plain(first.headline)}", width), "dim"))
        count = plural(len(findings), "minor finding")
        text = only_minor(first)
        severity: Severity = "benign" if text == ONLY_MINOR else "info"
        counted = line(("v", "key"), (f" {count}", "dim"))
        return _Paragraph(severity, f"{probably}NOTHING FOUND", text, largest, (counted,))
    name, fix = probably + rule_title(first.rule), fix_lines(first, len(findings) - 1, width, wraps=wraps)
    return _Paragraph(first.severity, name, plain(first.headline), where_line(first, width), fix)


def where_line(finding: Finding, width: int) -> Line:
    """``train.py:16  forward()  ▸ h, c = cell(x)``; the place is never cut."""
    if not finding.where:
        return ()
    where = finding.where[0]
    left = line(place_span(where, "key bold", width))
    if where.function and not where.function.startswith("<"):
        named = (*left, Span(f"  {function_text(where.function)}"))
        left = named if line_width(named) <= width else left
    source = plain(where.source.strip())
    room = width - line_width(left) - 4
    if not source or room < min(len(source), MIN_TEXT):
        return left
    return (*left, *line(("  ▸ ", "faint"), (source if len(source) <= room else source[: room - 1] + "…", "text")))


def fix_lines(first: Finding, others: int, width: int, *, wraps: bool) -> tuple[Line, ...]:
    """``FIX  num_workers=8     2.2x to 4.5x faster · v 2 more fixes``; the gain is never cut."""
    head = line(("FIX", "benign bold") if first.severity in ("critical", "warning") else ("TIP", "dim"), "  ")
    if not first.action:
        text = "nothing to fix" if first.severity == "benign" else ""
        return (justified(line((text, "dim")), _others(first, others, short=False), width),)
    gain, action = line((gain_text(first.fixes[0]), "benign bold")), plain(first.action)
    for where in first.where[:1]:  # the row above shows it
        action = action.replace(f" at {at(where)}", "").replace(f" {code_place(where)}", "")
    dot = line((" · ", "faint")) if gain[0].text else ()
    long, short = ((*gain, *dot, *_others(first, others, short=short)) for short in (False, True))
    for right in (long, short, gain):
        room = width - line_width(head) - line_width(right) - 2
        if room >= cell_len(action) or (right is short and room >= 2 * MIN_TEXT):
            break
    action, more = split_in_two(action, room, width - line_width(head), wraps=wraps)
    further = (line(" " * line_width(head), (more, "strong")),) if more else ()
    return (justified((*head, Span(action, "strong")), right, width), *further)


def _others(first: Finding, others: int, *, short: bool) -> Line:
    """The number of further fixes and findings, which ``v`` shows."""
    fixes = len(first.fixes[1:])
    if short:
        return line(("v", "key"), (f" +{fixes + others}", "dim")) if fixes + others else line(("v", "key"))
    parts = [plural(fixes, "more fix")] if fixes else []
    parts += [plural(others, "more finding")] if others > 0 else []
    return line(("v", "key"), (f" {', '.join(parts) or 'details'}", "dim"))


_NO_INPUT = "the full screen gives the program no input; tuimon run --headless does"


def _has_end_row(verdict: Verdict) -> bool:
    """True if the run's end needs a row: the title does not say all of it, and a finding takes the other rows."""
    end = verdict.exit
    return bool(verdict.findings) and end is not None and bool(end.last_line or end.survivors)


def _end_role(end: Exit) -> str:
    return "critical" if end.has_failed else "benign"


def _after_end(end: Exit) -> Line:
    """The exception that ended the run, and the processes that still run."""
    place = f"at {at(end.raised_at)}: " if end.raised_at is not None else ""
    spans = [Span(place + plain(end.last_line), f"{_end_role(end)} bold")] if end.last_line else []
    if running := survivors_text(end.survivors):
        spans += [*([Span(" · ", "faint")] if spans else []), Span(running, "warning")]
    return tuple(spans)
