"""The verdict: what the training waits for, what to do about it and what that gains, in at most three lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message

from tuimon.node_ids import own_id
from tuimon.records import Exit
from tuimon.session.state import RunState, run_state
from tuimon.session.unseen import Unseen, unseen_trainings
from tuimon.views.finding_text import ONLY_MINOR, headline_text, rule_title, speedup
from tuimon.views.format import plain
from tuimon.views.state_text import state_details, state_name, unseen_text
from tuimon.views.tui.drawing.lines import Line, Span, cells, clip, clipped, justified, line, wrapped
from tuimon.views.tui.drawing.pane import Pane

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session


#: Lines from which the advice has one of its own below a headline of two.
_WITH_ADVICE = 3
#: Cells of an advice from which it says something: a gain beside the place alone would read as that of the place.
_SOME_ADVICE = 16
_ARROW = line(("→ ", "dim"))


class Verdict(NamedTuple):
    """What the verdict lines show."""

    findings: tuple[Finding, ...]
    state: RunState
    inferred: bool
    exit: Exit | None
    focused: bool = False
    unseen: tuple[Unseen, ...] = ()


class VerdictPane(Pane[Verdict]):
    """The lines under the title; Enter opens all findings, what changed, and what could not be judged."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,down,right", "open", "findings", show=False)]

    class Opened(Message):
        """The user opened the list of all findings."""

    def collect(self, session: Session, findings: Sequence[Finding]) -> Verdict:
        """The findings, and the facts shown where there is none."""
        pid = session.trainer()
        table = session.phases(pid) if pid is not None else None
        return Verdict(
            findings=tuple(findings),
            state=run_state(session),
            inferred=table is not None and table.inferred,
            exit=session.exit,
            focused=self.has_focus,
            unseen=tuple(unseen_trainings(session)),
        )

    def draw(self, state: Verdict, width: int, height: int) -> list[Line]:
        """The lines."""
        return verdict_lines(state._replace(focused=self.has_focus), width, height)

    def action_open(self) -> None:
        """Open the list of findings."""
        self.post_message(self.Opened())

    def on_click(self) -> None:
        """A click opens it too."""
        self.action_open()

    def on_focus(self) -> None:
        """Show that keys go here."""
        self.redraw(force=True)

    def on_blur(self) -> None:
        """Keys go elsewhere."""
        self.redraw(force=True)


def verdict_lines(verdict: Verdict, width: int, height: int) -> list[Line]:
    """At most ``height`` lines: how the run ended; the first finding and its action; or why there is none yet.

    That a run has ended well, which the title shows too, leaves its line to a finding.
    """
    rows: list[Line] = []
    if verdict.exit is not None and not (verdict.findings and _is_clean(verdict.exit)):
        rows.append(_end(verdict.exit))
    if verdict.findings:
        rows += _finding(verdict.findings, width, height - len(rows))
    elif verdict.exit is None:
        rows += _nothing_yet(verdict)
    rows = [clip(row, width) for row in rows[:height]]
    if verdict.focused and rows:
        rows[0] = (Span("▸", "key bold"), *rows[0][1:])
    return rows


def _finding(findings: Sequence[Finding], width: int, height: int) -> list[Line]:
    from tuimon.diagnosis.rank import is_minor  # noqa: PLC0415  (who has a finding has loaded the rules; the first frame has none)

    first = findings[0]
    if is_minor(first.rule, first.severity):
        more = Span(f"  +{len(findings)} minor ", "dim")
        return [justified(line(" ", (" NOTHING FOUND ", "benign badge"), (f" {ONLY_MINOR}", "benign")), (more,), width)]
    badge = Span(f" {rule_title(first.rule)} ", f"{first.severity} badge")
    more = Span(f"  +{len(findings) - 1} more ", "dim") if len(findings) > 1 else Span(" ")
    room = width - cells((badge, more)) - 3  # a space before the badge, behind it, and before what stands at the right
    headline = headline_text(first.headline, first.where)
    head = wrapped(headline, room)
    if len(head) <= 1 or height < 2:
        top = line(" ", badge, " ", (clipped(headline, room), first.severity))
        return [justified(top, (more,), width), *_advice(first, width, height - 1)]
    top = line(" ", badge, " ", (head[0], first.severity))
    rest = line("   ", (headline[len(head[0]) :].strip(), first.severity))
    if height < _WITH_ADVICE:
        rest = _with_advice(rest, first, width)
    return [justified(top, (more,), width), rest, *_advice(first, width, height - 2)]


def _with_advice(text: Line, finding: Finding, width: int) -> Line:
    """The text with what to do behind it, if there is room for some of that, and what that would gain."""
    gain = _gain(finding)
    room = width - cells(text) - cells(gain) - cells(_ARROW) - 2
    if finding.action and room >= _SOME_ADVICE:
        text = (*text, Span(" "), *_ARROW, Span(clipped(plain(finding.action), room), "text"))
    return _beside(text, gain, width)


def _advice(finding: Finding, width: int, height: int) -> list[Line]:
    """What to do, and what it would gain."""
    gain, rows = _gain(finding), wrapped(plain(finding.action), width - 4)
    if height < 2 or len(rows) < 2:
        return [_beside(line("  ", *_ARROW, (" ".join(rows), "text")), gain, width)]
    rest = line("    ", (" ".join(rows[1:]), "text"))
    return [line("  ", *_ARROW, (rows[0], "text")), _beside(rest, gain, width)]


def _gain(finding: Finding) -> Line:
    gain = speedup(finding)
    return line((f"  {gain} faster ", "benign bold")) if gain else ()


def _beside(text: Line, gain: Line, width: int) -> Line:
    """The gain behind the text; the text gives way."""
    return (*text, *gain) if cells(text) + cells(gain) <= width else justified(text, gain, width)


def _went_well(end: Exit) -> bool:
    return end.exit_code in (0, None) and not end.signal


def _is_clean(end: Exit) -> bool:
    """Whether there is no more to say of an end than that it came."""
    return _went_well(end) and not end.last_line and not end.survivors


def _end(end: Exit) -> Line:
    if end.signal:
        how = f"killed by {end.signal}" + (f" (exit code {end.exit_code})" if end.exit_code else "")
    elif end.exit_code is None:
        how = "the process has ended"
    else:
        how = f"exit code {end.exit_code}"
    role = "benign" if _went_well(end) else "critical"
    spans = [Span(" "), Span(" ENDED ", f"{role} badge"), Span(f" {how}", f"{role} bold")]
    if end.last_line:
        spans += [Span(" · ", "faint"), Span(plain(end.last_line), "text")]
    if end.survivors:
        running = f"still running: {_pids(end.survivors)} (tuimon attach {own_id(end.survivors[0])})"
        spans += [Span(" · ", "faint"), Span(running, "warning")]
    return tuple(spans)


def _pids(pids: Sequence[int]) -> str:
    return ", ".join(f"pid {own_id(pid)}" for pid in pids[:4]) + (" …" if len(pids) > 4 else "")


def _nothing_yet(verdict: Verdict) -> list[Line]:
    state = verdict.state
    if state.name != "training":
        badge = f" {state_name(state).upper()} "
        rows = [line(" ", (badge, "dim badge"), (f" {state_details(state)}", "text"))]
        return rows + [line("   ", (unseen_text(each), "warning")) for each in verdict.unseen]
    basis = "in the stack samples" if verdict.inferred else "in the latest steps"
    return [line(" ", (" NOTHING FOUND ", "benign badge"), (f" no rule sees a bottleneck {basis}", "benign"))]
