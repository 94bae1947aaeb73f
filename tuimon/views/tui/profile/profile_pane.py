"""Hot lines and call tree: two views of the samples of the selected threads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from textual.binding import Binding, BindingType
from textual.events import Click

from tuimon.node_ids import own_id
from tuimon.records import PHASES, Place
from tuimon.session.stacks.samples import RANGE, Samples
from tuimon.session.threads import ThreadRow, role_kind
from tuimon.text import AROUND_LINES
from tuimon.views.format import count, percent, plain
from tuimon.views.report.report import Parts, parts_of
from tuimon.views.tui.drawing.lines import Line, Span, clip, justified, line, line_width
from tuimon.views.tui.drawing.moving import MovingPane
from tuimon.views.tui.profile.views import SORTS, LinesView, TreeView, node_of_line
from tuimon.views.tui.sheets.sheet import CodeAround, CodeLines

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.session.session import Session
    from tuimon.sources.source_text import CloseUp

ScopeLevel = Literal["thread", "role", "process", "run"]
SCOPE_LEVELS: tuple[ScopeLevel, ...] = ("thread", "role", "process", "run")


class Scope(NamedTuple):
    """A thread, and how many others around it are selected with it."""

    pid: int
    tid: int
    role: str  # of the thread, for the user: "main", "worker 0"
    level: ScopeLevel = "thread"

    @classmethod
    def of(cls, row: ThreadRow | None, session: Session) -> Scope:
        """This thread; without one, the training thread."""
        if row is not None:
            return cls(row.pid, row.tid, row.role or row.name)
        pid = session.trainer()
        tid = session.stacks[pid].tid
        return cls(pid, tid, "main" if tid == pid else "training")

    def threads(self, session: Session) -> list[tuple[int, int]]:
        """(pid, tid) of the selected threads."""
        view, pids = session.shown(), [self.pid]
        if self.level == "thread":
            return [(self.pid, self.tid)]
        if self.level == "role":
            return [(row.pid, row.tid) for row in view.threads() if row.kind == role_kind(self.role)]
        if self.level == "run":
            pids = [process.pid for process in session.processes()] or pids
        return [(pid, tid) for pid in pids for tid in view.of(pid).sampled_tids(now=True)]

    def samples(self, session: Session) -> Samples:
        """The selected threads' samples; outside the training processes the phase is "none"."""
        trainers, found = set(session.trainers()), []
        for pid, tid in self.threads(session):
            own = session.shown().of(pid).samples_of(tid, now=True)
            found.append(own if pid in trainers else Samples(tuple(row.in_phase("none") for row in own.rows)))
        return Samples.joined(found)

    def wider(self, session: Session) -> Scope:
        """The next level that can select more; after the last one, the thread again."""
        alone: set[ScopeLevel] = {"role"} if len(self._replace(level="role").threads(session)) < 2 else set()
        alone |= {"run"} if len(session.processes()) < 2 else set()
        levels = [level for level in SCOPE_LEVELS if level not in alone or level == self.level]
        return self._replace(level=levels[(levels.index(self.level) + 1) % len(levels)])

    def text(self, session: Session) -> str:
        """The owner of the samples: ``main · pid 4242``, ``all 4 worker threads``, ``process 4242``."""
        match self.level:
            case "thread":
                is_main = self.tid == self.pid
                return f"{self.role} · {'pid' if is_main else 'tid'} {own_id(self.pid if is_main else self.tid)}"
            case "role":
                return f"all {len(self.threads(session))} {role_kind(self.role)} threads"
            case "process":
                return f"process {own_id(self.pid)}"
            case "run":
                return "the whole run"


def blamed(session: Session, findings: Sequence[Finding]) -> tuple[ThreadRow, Place] | None:
    """The training thread or the worker with most samples at the place of the first finding; None if there is none."""
    where = findings[0].where[0] if findings and findings[0].where else None
    pid = session.trainer()
    if where is None or not pid:
        return None
    rows = session.shown().threads()
    training = [row for row in rows if (row.pid, row.tid) == (pid, session.stacks[pid].tid)]
    # all do the same work, and a table of each takes some ms
    workers = [row for row in rows if row.kind == "worker"][:8]

    def passed(row: ThreadRow) -> int:
        lines = Scope.of(row, session).samples(session).table().lines
        return sum(each.total for each in lines if each.place[:2] == where[:2])

    most, row = max(((passed(row), row) for row in (*training, *workers)), key=itemgetter(0), default=(0, None))
    return (row, where) if row is not None and most else None


#: Costly work is due again after this many times its CPU time, so that it takes at most 4 % of a core.
_REST_FACTOR = 25
#: CPU time from which work counts as costly.
_REST_ABOVE_S = 0.02
Mode = Literal["lines", "tree"]
MODES: dict[Mode, str] = {"lines": "h Hot lines", "tree": "c Call tree"}
#: The phases that the samples of a training thread always divide into; evaluation where there is any.
FILTERS: tuple[str | None, ...] = (None, *(name for name in PHASES if name != "eval"))


def filters(samples: Samples) -> tuple[str | None, ...]:
    """The filters that ``f`` cycles through: all, the phases, the user's ranges."""
    evaluation = ("eval",) if samples.phases["eval"] else ()
    return (*FILTERS, *evaluation, *(RANGE + path for path in sorted(samples.ranges)))


def tabs_line(mode: Mode, who: str, samples: int, width: int) -> Line:
    """The names of the two views, the current one marked; at the right the threads and the number of their samples."""
    spans: list[Span] = []
    for name, title in MODES.items():
        key, words = title.split(" ", 1)
        tab = (
            line((f" {title} ", "key badge")) if name == mode else line((f" {key}", "key bold"), (f" {words} ", "dim"))
        )
        spans += [*tab, Span(" ")]
    many = line((f"  {count(samples)} samples", "dim")) if width >= 90 else ()
    right = (Span("t ", "key bold"), Span(plain(who), "strong"), *many)
    return justified(spans, clip(right, max(width - line_width(spans) - 1, 10)), width)


def choices_line(samples: Samples, part: str | None, width: int, *, ranges: bool = False) -> Line:
    """The phases, or the user's ranges, with their shares of these samples, the one that is shown alone marked.

    If room is short, phases before it are left out.
    """
    names = [name for name in filters(samples) if (name or "").startswith(RANGE) == ranges]
    label = Span(" ranges ", "dim") if ranges else Span(" f  " if width >= 90 else " f ", "key bold")
    choices = [_choice(samples, name, part, tight=width < 90) for name in names]
    at = names.index(part) if part in names else 0
    first = 0
    while first < at and line_width([label, Span("… "), *chain(*choices[first : at + 1])]) > width:
        first += 1
    return clip([label, *([Span("… ", "dim")] if first else []), *chain(*choices[first:])], width)


def _choice(samples: Samples, name: str | None, part: str | None, *, tight: bool) -> list[Span]:
    is_range = name is None or name.startswith(RANGE)
    text, role = plain((name or "all").removeprefix(RANGE)), "text" if is_range else name or ""
    share = f" {percent(samples.part(phase=name))}" if name and samples.total else ""
    if tight:
        share = share.replace(" %", "%")
    after = Span("" if tight else " ")
    if name == part:
        marked = "key" if role == "text" else role
        return [Span(f" {text}{share} ", f"{marked} badge"), after]
    return [Span(f" {text}", role), Span(f"{share} ", "dim"), after]


def empty_lines(samples: Samples, phase: str | None) -> list[Line]:
    """The reason why there is nothing to show, and a key to press."""
    if not samples.total or phase is None:
        why = "a thread without Python, one that sleeps all the time, or one not sampled yet"
        whole = line("press ", ("t", "key bold"), " to see the whole process")
        return [(), line(("no stack samples", "text")), line((why, "dim")), whole]
    if all(name == "none" for name in samples.phases):
        why = "only the training threads have phases: these threads have none"
        return [(), line((why, "text")), line("press ", ("f", "key bold"), " for all samples")]
    part = f"the range {plain(phase.removeprefix(RANGE))}" if phase.startswith(RANGE) else phase
    return [(), line((f"no sample in {part}", "text"))]


class _DutyCycle:
    """Decides when costly work is due again."""

    def __init__(self) -> None:
        self._rest_until_s = 0.0

    def is_due(self) -> bool:
        """True if the work may be done now."""
        return time.monotonic() >= self._rest_until_s

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the work in the ``with`` block; costly work delays when it is due next."""
        began_s = time.thread_time()
        yield
        cost_s = time.thread_time() - began_s
        if cost_s > _REST_ABOVE_S:
            self._rest_until_s = max(self._rest_until_s, time.monotonic() + _REST_FACTOR * cost_s)


class ProfileState(NamedTuple):
    """The samples of a scope."""

    samples: Samples  # the same object as long as no new sample came
    who: str
    on_gpu: bool
    span: str  # the name of the time that they cover


class ProfilePane(MovingPane[ProfileState]):
    """Takes the place of all panes while it is open; computes nothing while it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.step_back", "back", key_display="Esc"),
        Binding("h", "app.profile('lines')", "lines"),
        Binding("c", "app.profile('tree')", "tree"),
        Binding("f", "select_phase(1)", "phase"),
        Binding("F", "select_phase(-1)", show=False),
        Binding("t", "extent", "threads"),
        Binding("enter", "enter", "open", key_display="Enter"),
        Binding("s", "sort", "sort"),
        Binding("u", "toggle_libraries", "library lines"),
        Binding("left", "sideways(-1)", show=False),
        Binding("right", "sideways(1)", show=False),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.mode: Mode = "lines"
        self.phase: str | None = None  # or a user range; None: all samples
        self.lines_view, self.tree_view = LinesView(), TreeView()
        self.scope: Scope | None = None
        self._session: Session | None = None
        self._duty_cycle = _DutyCycle()
        self._made_from: tuple[object, ...] | None = None  # the input that ``_samples`` was made from
        self._samples: Samples | None = None
        self._code: CodeAround | None = None

    def _code_of(self, place: Place) -> CodeLines:
        """The code around a line, read as the process of the scope could."""
        session, scope, code = self._session, self.scope, self._code
        return code.of(place, AROUND_LINES, session, scope.pid) if session and scope and code else ()

    def open(
        self,
        mode: Mode,
        row: ThreadRow | None,
        session: Session,
        *,
        place: Place | None = None,
        closeup: CloseUp | None = None,
    ) -> None:
        """Show a view of a thread's samples; without ``row``, of those shown last, at first the training thread's.

        The cursor goes to the line of ``place``; ``closeup`` reads the code around a line.
        """
        self._code = self._code or CodeAround(self, closeup, partial(self.redraw, force=True))
        if self.scope is None or (row is not None and (row.pid, row.tid) != (self.scope.pid, self.scope.tid)):
            self._show(Scope.of(row, session))
        if place is not None:
            self.lines_view.pointed = place
        self.mode = mode
        if row is None and self.state is not None:  # another view of the same samples, also while paused
            self.redraw(force=True)
        else:
            self._refresh_from(session)

    def _show(self, scope: Scope) -> None:
        self.scope, self.lines_view, self.tree_view = scope, LinesView(), TreeView()

    def _refresh_from(self, session: Session) -> None:
        """Show the newest samples of the scope."""
        self.state = self.collect(parts_of(session.shown()), ())
        self.redraw(force=True)

    def update_state(self, now: Parts, findings: Sequence[Finding]) -> None:
        """Collect the state, unless the pane is closed or the last time was costly and recent."""
        self._session = now.session
        if self.display and self.scope is not None and self._duty_cycle.is_due():
            with self._duty_cycle.measured():
                super().update_state(now, findings)

    def collect(self, now: Parts, findings: Sequence[Finding]) -> ProfileState:
        """The samples of the scope; the same as before unless new ones came."""
        self._session = session = now.session
        scope = self.scope or Scope.of(None, session)
        pids = {pid for pid, _ in scope.threads(session)}
        made_from = (scope, session.exit, [spot.latest_s for pid, spot in session.stacks.items() if pid in pids])
        if self._samples is None or made_from != self._made_from:
            self._made_from = made_from
            self._samples = scope.samples(session)
        process = session.process(scope.pid)
        on_gpu = bool(process and process.gpu_uuids)
        return ProfileState(self._samples, scope.text(session), on_gpu, now.span_name)

    def draw(self, state: ProfileState, width: int, height: int) -> list[Line]:
        above, phase = self._above(state, width), self.phase
        if not state.samples.where(phase=phase).total:
            return [*above, *empty_lines(state.samples, phase)][:height]
        room = max(height - len(above), 1)
        with self._duty_cycle.measured():
            if self.mode == "lines":
                view = self.lines_view
                below = view.draw(state.samples, phase, width, room, on_gpu=state.on_gpu, code_of=self._code_of)
            else:
                below = self.tree_view.draw(state.samples, phase, width, room)
        return [*above, *below][:height]

    def _above(self, state: ProfileState, width: int) -> list[Line]:
        samples, phase = state.samples, self.phase
        lines = [tabs_line(self.mode, state.who, samples.total, width)]
        if any(name != "none" for name in samples.phases) or phase is not None:
            lines.append(choices_line(samples, phase, width))
        if samples.ranges:
            lines.append(choices_line(samples, phase, width, ranges=True))
        return [*lines, ()]

    def heading(self, state: ProfileState) -> tuple[Span, ...]:
        """The name of the view, and the key that leaves it."""
        every = " · every line by itself" if self.mode == "lines" and self.lines_view.libraries else ""
        return (Span("Where the time goes", "text bold"), Span(f" · {state.span}{every} · Esc closes", "dim"))

    # -- keys

    @property
    def view(self) -> LinesView | TreeView:
        return self.lines_view if self.mode == "lines" else self.tree_view

    def action_move(self, rows_down: int) -> None:
        self.view.rows.move(rows_down)
        self.redraw(force=True)

    def action_sideways(self, step: int) -> None:
        """Select the next phase of the hot lines; fold or unfold the tree."""
        if self.mode == "lines":
            self.action_select_phase(step)
        else:
            self.tree_view.sideways(step)
            self.redraw(force=True)

    def action_enter(self) -> None:
        """From the hot lines, show the line in the tree; in the tree, fold or unfold."""
        row = self.lines_view.rows.selected
        if self.mode == "tree":
            self.tree_view.enter()
        elif row is not None and self.state is not None:
            self.mode = "tree"
            node = node_of_line(self.state.samples.tree(self.phase), row)
            if node is not None:
                self.tree_view.reveal(node)
        self.redraw(force=True)

    def action_select_phase(self, step: int) -> None:
        """Show only the samples of the next phase or user range."""
        choices = filters(self.state.samples) if self.state is not None else FILTERS
        at = choices.index(self.phase) if self.phase in choices else 0  # a range may have left them
        self.phase = choices[(at + step) % len(choices)]
        self.tree_view = TreeView()
        self.redraw(force=True)

    def action_toggle_libraries(self) -> None:
        """List every line by itself, or a library's time with the line that called it."""
        self.lines_view.libraries = not self.lines_view.libraries
        self.redraw(force=True)

    def action_sort(self) -> None:
        """Sort the lines by their own or their total share."""
        self.lines_view.sort = (self.lines_view.sort + 1) % len(SORTS)
        self.redraw(force=True)

    def action_extent(self) -> None:
        """Change the scope: this thread, all threads of its role, its process, the whole run."""
        if self.scope is not None and self._session is not None:
            self._show(self.scope.wider(self._session))
            self._refresh_from(self._session)

    def on_click(self, event: Click) -> None:
        """A click selects; a second one does what Enter does."""
        offset = event.get_content_offset_capture(self)
        above = len(self._above(self.state, self.content_size.width)) if self.state is not None else 2
        if self.view.rows.click(int(offset.y) - above - self.view.HEAD_LINES):
            self.action_enter()
        self.redraw(force=True)
