"""The verdict: what holds the training back, where, and what fixing it gains, in three rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from tuimon.diagnosis.words import at
from tuimon.records import Exit
from tuimon.session.state import RunState, Unseen, ended_before_torch, run_state, unseen_trainings
from tuimon.views.finding_text import ONLY_MINOR, gain_text, only_minor, rule_title
from tuimon.views.format import place, plain
from tuimon.views.tui.drawing.canvas import Pane
from tuimon.views.tui.drawing.lines import BLANK, Line, Span, cells, clip, clipped_words, justified, line, wrapped
from tuimon.views.tui.drawing.palette import SEVERITY_WORDS
from tuimon.views.words import end_tip, how_ended, state_details, state_name, survivors_text, unseen_reason, unseen_text

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding, Severity
    from tuimon.session.session import Session
    from tuimon.views.report_types import FindingJson

#: Rows of the verdict; above them one more says how a run failed.
ROWS = 3
#: Fewest cells in which a source line, or the words of a fix, say something.
_LEAST_TEXT = 16


class Verdict(NamedTuple):
    """The state of the verdict's rows."""

    findings: tuple[Finding, ...]
    state: RunState
    inferred: bool
    exit: Exit | None
    focused: bool = False
    unseen: tuple[Unseen, ...] = ()
    measuring_s: int | None = None  # seconds measured so far, while no verdict has held
    sampled: bool = True  # stack samples show what the training thread does
    trains: bool = True  # its steps have phases of a training
    before_torch: bool = False  # the run ended before any process had imported torch


class _Block(NamedTuple):
    """The rows without the bar at their left; ``role`` colours bar and name."""

    role: str
    name: str
    headline: str
    word: str = ""
    where: Line = ()
    fix: Line = ()


class VerdictPane(Pane[Verdict]):
    """The rows under the title; Enter opens all findings, what changed, and what could not be judged."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,down,right", "app.findings", "findings", show=False)]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._first = FirstVerdict()
        self.is_live = True  # False: no more records come, and no verdict waits for them

    def collect(self, session: Session, findings: Sequence[Finding]) -> Verdict:
        """The findings, and the facts shown where there is none."""
        pid = session.trainer()
        table = session.over("recent").phases(pid) if pid is not None else None
        state = run_state(session)
        return Verdict(
            findings=tuple(findings),
            state=state,
            inferred=table is not None and table.inferred,
            exit=session.exit,
            focused=self.has_focus,
            unseen=tuple(unseen_trainings(session)),
            sampled=pid is not None and session.stacks.get(pid) is not None,
            trains=table is None or table.trains,
            before_torch=ended_before_torch(session),
            measuring_s=self._first.measuring_s(session, findings)
            if self.is_live and state.name == "training"
            else None,
        )

    def draw(self, state: Verdict, width: int, height: int) -> list[Line]:
        """The rows."""
        return verdict_lines(state._replace(focused=self.has_focus), width)[:height]

    @property
    def rows_wanted(self) -> int:
        """How many rows the verdict takes."""
        return ROWS + (self.state is not None and _has_end_row(self.state))

    async def on_click(self) -> None:
        """A click opens all findings too."""
        await self.run_action("app.findings")


def verdict_lines(verdict: Verdict, width: int) -> list[Line]:
    """Name, headline and severity; the place with its source line; the best fix with its gain.

    How a run failed stands above them in a row of its own.
    """
    room = width - 4  # a space and the bar at the left, a space at the right
    block = _block(verdict, room)
    head = line((block.name, f"{block.role} bold"), "  " * bool(block.headline))
    word = line((f" {block.word} ", f"{block.role} badge")) if block.word else ()
    free = room - cells(head) - (cells(word) + 2 if word else 0)
    where, headline = block.where, clipped_words(block.headline, free)
    if not where and headline != block.headline:  # the row is free for the rest of the headline
        headline = wrapped(block.headline, free)[0]
        where = line((clipped_words(block.headline.removeprefix(headline).strip(), room), "strong"))
    rows = [
        _bar(row, block.role) for row in (justified((*head, Span(headline, "strong")), word, room), where, block.fix)
    ]
    if _has_end_row(verdict) and verdict.exit is not None:
        rows.insert(0, _bar(clip(_after_end(verdict.exit), room), _end_role(verdict.exit)))
    if verdict.focused:
        rows[0] = (Span("▸", "key bold"), *rows[0][1:])
    return rows


def _bar(row: Line, role: str) -> Line:
    return (Span(" "), Span("┃ ", role), *row)


def _block(verdict: Verdict, width: int) -> _Block:
    if verdict.measuring_s is not None:
        return _Block("info", "MEASURING", f"{verdict.measuring_s} s: the first verdict is shown once it has held")
    if verdict.findings:
        return _of_findings(verdict.findings, width)
    if verdict.exit is not None:
        end = verdict.exit
        word = "failed" if end.has_failed else ""
        # pickle's EOFError has another message
        reads_input = (end.last_line or "").startswith("EOFError: EOF when reading a line")
        tip = _NO_INPUT if reads_input else end_tip(end, before_torch=verdict.before_torch)
        advice = clip(line(("TIP", "dim"), ("  " + tip, "text")), width) if tip is not None else BLANK
        return _Block(
            _end_role(end),
            "ENDED",
            how_ended(end, with_place=False).removeprefix("ended "),
            word,
            clip(_after_end(end), width),
            advice,
        )
    if verdict.state.name != "training":
        texts = [unseen_text(each) for each in verdict.unseen]
        if len(verdict.unseen) == 1:  # one process has both rows
            first, *rest = wrapped(unseen_reason(verdict.unseen[0]), width)
            texts = [first, " ".join(rest)]
        rows = [clip(line((text, "warning")), width) for text in texts]
        where, fix = [*rows, BLANK, BLANK][:2]
        return _Block("dim", state_name(verdict.state).upper(), state_details(verdict.state), "", where, fix)
    basis = "in the stack samples" if verdict.inferred else "in the latest steps"
    more = line(("v", "key"), ("  what changed, and what could not be judged", "dim"))
    if not verdict.trains:
        return _Block("info", "NOTHING FOUND", "no batch, backward pass or update was seen", "", more)
    if not verdict.sampled:
        return _Block("info", "NOTHING FOUND", "without stack samples few rules can judge", "", more)
    return _Block("benign", "NOTHING FOUND", f"no rule sees a bottleneck {basis}", "healthy", more)


def _of_findings(findings: Sequence[Finding], width: int) -> _Block:
    from tuimon.diagnosis.rulebook import is_minor  # noqa: PLC0415  (with a finding the rules are loaded; the first frame has none)
    from tuimon.views.report_types import FindingJson  # noqa: PLC0415  (as above)

    first = FindingJson.of(findings[0])
    if is_minor(first.rule, first.severity):
        largest = line((clipped_words(f"largest: {plain(first.headline)}", width), "dim"))
        count = f"{len(findings)} minor finding{'s' * (len(findings) > 1)}"
        verdict = only_minor(first)
        severity: Severity = "benign" if verdict == ONLY_MINOR else "info"
        counted = line(("v", "key"), (f" {count}", "dim"))
        return _Block(severity, "NOTHING FOUND", verdict, SEVERITY_WORDS[severity], largest, counted)
    return _Block(
        first.severity,
        rule_title(first.rule),
        plain(first.headline),
        SEVERITY_WORDS[first.severity],
        where_line(first, width),
        fix_line(first, len(findings) - 1, width),
    )


def where_line(finding: FindingJson, width: int) -> Line:
    """``train.py:16  forward()  ▸ h, c = cell(x)``; the place is never cut."""
    if not finding.where:
        return ()
    where = finding.where[0]
    left = line((place(where.file, where.line, width=width), "key bold"))
    unnamed = not where.function or where.function.startswith("<")
    named = left if unnamed else (*left, Span(f"  {plain(where.function)}()"))
    left = named if cells(named) <= width else left
    source = plain(where.source or "")
    room = width - cells(left) - 4
    if not source or room < min(len(source), _LEAST_TEXT):
        return left
    return (*left, *line(("  ▸ ", "faint"), (source if len(source) <= room else source[: room - 1] + "…", "text")))


def fix_line(first: FindingJson, others: int, width: int) -> Line:
    """``FIX  num_workers=8     2.2x to 4.5x faster · v 2 more fixes``; the gain is never cut."""
    head = line(("FIX", "benign bold") if first.severity in ("critical", "warning") else ("TIP", "dim"), "  ")
    if not first.action:
        text = "nothing to fix" if first.severity == "benign" else ""
        return justified(line((text, "dim")), _others(first, others, short=False), width)
    gain, action = line((gain_text(first.fixes[0]), "benign bold")), plain(first.action)
    for where in first.where[:1]:  # the row above shows it
        spot = place(where.file, where.line)
        action = action.replace(f" at {plain(where.function)}() {spot}", "").replace(f" {spot}", "")
    dot = line((" · ", "faint")) if gain[0].text else ()
    long, short = ((*gain, *dot, *_others(first, others, short=short)) for short in (False, True))
    for right in (long, short, gain):
        room = width - cells(head) - cells(right) - 2
        if room >= cell_len(action) or (right is short and room >= 2 * _LEAST_TEXT):
            break
    return justified((*head, Span(clipped_words(action, room), "strong")), right, width)


def _others(first: FindingJson, others: int, *, short: bool) -> Line:
    """The number of further fixes and findings, which ``v`` shows."""
    fixes = len(first.fixes[1:])
    if short:
        return line(("v", "key"), (f" +{fixes + others}", "dim")) if fixes + others else line(("v", "key"))
    parts = [f"{fixes} more fix{'es' * (fixes > 1)}"] if fixes else []
    parts += [f"{others} more finding{'s' * (others > 1)}"] if others > 0 else []
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


#: Seconds that the first verdict must hold: our choice, two windows of stack samples; the finding of small
#: batches, which needs none, came first in half of the short runs and gave way to another within that time.
HOLD_S = 5.0
#: Seconds that nothing must be found: the most demanding rules need GPU events and samples of some windows.
NOTHING_S = 10.0
#: Seconds of steps after which no verdict is held back: all evidence covers whole windows by then.
SETTLED_S = 30.0
#: Rules about the present moment, which are shown without delay.
_AT_ONCE = ("hang", "warmup")


class FirstVerdict:
    """Decides whether the first verdict has held long enough; later changes are left to the hysteresis."""

    def __init__(self) -> None:
        self._is_settled = False
        self._name: str | None = ""  # "": no verdict yet
        self._since_s = 0.0

    def measuring_s(self, session: Session, findings: Sequence[Finding]) -> int | None:
        """Seconds for which steps have been measured while no verdict has held; None once one has."""
        now_s, begin_s = session.now_s, _begin_s(session)
        if self._is_settled or session.exit is not None or any(each.rule in _AT_ONCE for each in findings[:1]):
            return None
        name = f"{findings[0].rule}/{findings[0].cause}" if findings else None
        if name != self._name:
            self._name, self._since_s = name, now_s
        if findings:
            self._is_settled = now_s - self._since_s >= HOLD_S
        else:
            self._is_settled = now_s - begin_s >= NOTHING_S
        self._is_settled = self._is_settled or now_s - begin_s >= SETTLED_S
        return None if self._is_settled else int(now_s - begin_s)


def _begin_s(session: Session) -> float:
    """When the steps began; without markers, when tuimon began to watch."""
    pid = session.trainer()
    stats = session.step_stats.get(pid) if pid is not None else None
    if stats is not None and stats.begin_s is not None:
        return stats.begin_s
    return session.start_s if session.start_s is not None else session.now_s
