"""The app: composes the board, routes keys and ticks; its terminal may be lost. The panes decide what they show."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.actions import ActionParseResult
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode

from tuimon.errors import TuimonError
from tuimon.launch.signals import LeaveSignals
from tuimon.session.ranks import which_training
from tuimon.text import code_place
from tuimon.views.finding_text import markdown_lines
from tuimon.views.format import plain
from tuimon.views.report.report import parts_of
from tuimon.views.run_text import how_ended
from tuimon.views.tui.board import PANES, Board, Pacing
from tuimon.views.tui.drawing.moving import MOVES
from tuimon.views.tui.panes.ranks_pane import RanksPane
from tuimon.views.tui.panes.threads_pane import ThreadsPane
from tuimon.views.tui.profile.profile_pane import Mode
from tuimon.views.tui.sheets.sheet import Choice, Overlay, QuitDialog, Sheet
from tuimon.views.tui.terminal_app import Capabilities, TerminalApp, reset_job_control

if TYPE_CHECKING:
    from tuimon.diagnosis.finding import Finding
    from tuimon.monitor.monitor import Monitor

#: Editors that take ``FILE:LINE``, and the options before it; all others take ``+LINE FILE``, as vi does.
_FILE_LINE = {
    **dict.fromkeys(("code", "code-insiders", "codium", "cursor", "windsurf"), ("--goto",)),
    **dict.fromkeys(("subl", "hx", "helix", "zed", "zeditor"), ()),
}
#: Editors to look for if the environment names none.
_USUAL = ("nano", "vim", "vi", "emacs")


class AppOutcome(NamedTuple):
    """The outcome of the app: tuimon's exit code, and the line to print on the restored terminal."""

    exit_code: int
    message: str | None = None
    terminal_lost: bool = False


def closing_line(monitor: Monitor) -> str | None:
    """The closing line about a training that was launched here and has not ended; None if there is none."""
    if monitor.launched is None or monitor.ended:
        return None
    pid = monitor.launched.pid
    return f"The training goes on as pid {pid}. Come back with: tuimon attach {pid}"


class TuimonApp(TerminalApp[AppOutcome]):
    """Watches one run, which goes on when the app is left unless the user has it ended."""

    AUTO_FOCUS = None
    #: The last line shows the bindings that have a description, the most important first.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "quit"),
        Binding("ctrl+q", "leave", show=False),
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("question_mark,f1", "help", "help", key_display="?"),
        Binding("S", "standstill", "stacks"),
        Binding("v", "findings", "verdicts"),
        Binding("h", "profile('lines')", "hot lines"),
        Binding("o", "edit", "open"),
        Binding("y", "copy", "copy"),
        Binding("r", "ranks", "ranks"),
        Binding("c", "profile('tree')", "calls"),
        Binding("K,k", "trace", "trace"),  # k alone moves up where a list has the focus
        Binding("z,enter", "zoom", "zoom"),
        Binding("space,p", "pause", "pause"),
        Binding("1", "toggle_pane('step')", "panes", key_display="1-6 Tab"),
        Binding("d", "theme", "light/dark"),
        Binding("e", "export", "export"),
        Binding("escape", "step_back", show=False),
        Binding("slash", "filter", show=False),
        Binding("s", "sort", show=False),
        Binding("m", "memory", show=False),
        Binding("I", "inject", show=False),
        *(Binding(key, f"move({rows_down})", show=False) for key, rows_down in MOVES.items()),
        *(Binding(str(digit), f"toggle_pane('{name}')", show=False) for digit, name in enumerate(PANES[1:], 2)),
    ]

    def __init__(
        self,
        monitor: Monitor,
        refresh_s: float = 0.5,
        capabilities: Capabilities | None = None,
        signals: LeaveSignals | None = None,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """``begin`` is called once the first frame is drawn."""
        super().__init__(capabilities)
        self.monitor = monitor
        self._signals = signals or LeaveSignals()
        self._begin = begin
        self.board = Board()
        self.board.output.tail = monitor.output
        self._refresh_s = refresh_s
        self._is_editing = False  # a second editor would have Textual take its own modes for the terminal's
        header = monitor.session.header
        self._pacing = Pacing(round((header.interval_s if header else 1.0) / refresh_s))

    def compose(self) -> ComposeResult:
        yield self.board

    def on_mount(self) -> None:
        """Wake up at signals, show the session, and start the one timer."""
        # not add_signal_handler: its handlers end with the loop, and a shell's second SIGHUP would kill tuimon
        self._signals.notify = partial(asyncio.get_running_loop().call_soon_threadsafe, self._check_signals)
        self._check_signals()
        self._show()
        self.set_interval(self._refresh_s, self.tick)
        if self.monitor.hooks is not None and self.monitor.hooks.are_missing():
            self.notify(
                "no markers: phases are inferred from samples; press I to measure them", markup=False, timeout=10
            )

    def on_unmount(self) -> None:
        """Wake up at signals no longer."""
        self._signals.notify = None

    def _check_signals(self) -> None:
        """After a signal to leave, give the terminal back as it was; a training that was started here goes on."""
        if self._signals.hung_up:
            self.leave_lost_terminal()
        elif self._signals.ended_by is not None:
            self.exit(AppOutcome(128 + self._signals.ended_by, closing_line(self.monitor)))

    async def action_leave(self) -> None:
        """Leave the app; while a launched run goes on, open the quit dialog."""
        monitor = self.monitor
        if isinstance(self.screen, QuitDialog):
            self.screen.dismiss("leave")
        elif monitor.launched is not None and not monitor.ended:

            def chosen(choice: Choice | None) -> None:
                if choice == "leave":
                    self.exit(AppOutcome(0, closing_line(monitor)))
                elif choice == "ended":
                    self.exit(self._end_of_run())

            self.push_screen(QuitDialog(monitor), chosen)
        else:
            self.exit(self._end_of_run())

    def _end_of_run(self) -> AppOutcome:
        """The outcome of the app when the run is over or was not launched here."""
        end = self.monitor.session.exit
        code = self.monitor.exit_code or 0 if self.monitor.launched is not None else 0
        if end is not None and end.has_failed:
            message = f"The training {'was ' if end.signal else ''}{how_ended(end)}"
            return AppOutcome(code, "\n".join(filter(None, (message, plain(end.last_line or "")))))
        return AppOutcome(code, f"The training ended with exit code {code}" if code else None)

    def on_ready(self) -> None:
        """Begin once the first frame is drawn."""
        self.call_after_refresh(self._begin)

    def tick(self) -> None:
        """Let the monitor fold new records, then show the session."""
        paused = self.board.title_line.paused
        is_due = self._pacing.is_due(self.monitor.tick(), paused)
        self.board.output.read_output()
        if is_due:
            self._show()
        elif not paused:
            self.board.output.update_state(parts_of(self.monitor.session.shown()), ())
            self.board.output.redraw()
        if isinstance(self.screen, Overlay):
            self.screen.update()

    def _show(self) -> None:
        header = self.monitor.session.header
        if header is not None and self.terminal.glyphs != "ascii":
            self.terminal = self.terminal._replace(host=header.host)
        self.board.title_line.followed = self.monitor.is_followed(time.time())
        self.board.verdict.measuring_s = self.monitor.measuring_s(time.time())
        self.board.title_line.read_ratio = self.monitor.read_ratio
        self.board.show(self.monitor.session, self.monitor.findings, frozenset(self.idle_keys()))

    def idle_keys(self) -> dict[str, str]:
        """The actions that have nothing to do here, each with the reason."""
        monitor, session, findings = self.monitor, self.monitor.session, self.monitor.findings
        runs = monitor.is_live and bool(session.trainer()) and session.exit is None
        paused, zoomed = self.board.title_line.paused, self.board.zoomed
        shown = [self._finding()] if findings and isinstance(self.screen, Overlay) else findings[:1]
        reasons = (
            ("ranks", not which_training(session), "one process trains here: there are no ranks to compare"),
            ("trace", not (runs or session.traces), "no training runs here, and the log has no trace"),
            (
                "memory",
                not (monitor.is_live or session.memory_history),
                "this log has no record of memory; --memory makes one",
            ),
            (
                "standstill",
                not session.standstills.past,
                "the stacks of all ranks are taken once nothing moves in any of them",
            ),
            ("inject", monitor.hooks is None, "hooks are brought in only after tuimon attach"),
            ("pause", monitor.ended and not paused, "the run has ended: nothing moves any more"),
            ("zoom", self.focused is None and not zoomed, "Tab chooses a pane; z then shows it alone"),
            ("copy", not shown, "there is no verdict to copy yet"),
            ("edit", not any(finding.where for finding in shown), "this verdict names no line of code"),
            ("move", self.focused is not None, "nothing to scroll in this pane; Tab goes to the next one"),
        )
        return {action: reason for action, is_idle, reason in reasons if is_idle}

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action, or notify the user why it has nothing to do."""
        name = action.partition("(")[0] if isinstance(action, str) else action[1]
        is_own = default_namespace in (None, self) or name.startswith("app.")
        reason = self.idle_keys().get(name.removeprefix("app.")) if is_own else None
        if reason is None:
            return await super().run_action(action, default_namespace, namespaces)
        self.notify(reason, markup=False)
        return True

    def action_help(self) -> None:
        """Explain the focused pane and the keys; Enter there explains every number."""
        from tuimon.views.tui.sheets.help import HelpSheet

        self.push_screen(HelpSheet(self.focused.id if self.focused else None))

    def action_findings(self) -> None:
        """Show all findings in full, the changes of the verdict, and the rules that could not judge."""
        from tuimon.views.tui.sheets.findings_sheet import FindingsSheet

        self.push_screen(FindingsSheet(self.monitor))

    def action_standstill(self) -> None:
        """Show where all ranks were when nothing moved."""
        from tuimon.views.tui.sheets.stack_sheets import standstill_lines

        self.push_screen(Sheet("Standstill: where all ranks are", partial(standstill_lines, self.monitor.session)))

    def action_memory(self) -> None:
        """Show which lines allocate memory that is not freed."""
        from tuimon.views.tui.sheets.memory_sheet import MemorySheet

        self.push_screen(MemorySheet(self.monitor))

    def on_threads_pane_thread_opened(self, message: ThreadsPane.ThreadOpened) -> None:
        """Enter on a thread opens its sheet."""
        from tuimon.views.tui.sheets.stack_sheets import ThreadSheet

        self.push_screen(ThreadSheet(message.row, self.monitor.session, self.monitor.closeup))

    def action_trace(self) -> None:
        """Record the next steps of the training whose figures are shown, or show the latest trace in a log."""
        from tuimon.views.tui.sheets.trace_sheet import trace_sheet

        self.push_screen(trace_sheet(self.monitor.session, runs=self.monitor.is_live))

    def action_export(self) -> None:
        """Save a report as JSON and text, and a screenshot, in the current folder."""
        from tuimon.views.report.write import save

        session = self.monitor.session
        stem = f"tuimon-{session.trainer()}-{session.now_s:.0f}"
        try:
            paths = save(self.monitor.verdicts, stem, self.export_screenshot())
        except TuimonError as error:
            self.notify(f"not saved in {plain(os.getcwd())}: {error.message}", severity="error", markup=False)
            return
        self.notify("saved " + ", ".join(os.path.basename(path) for path in paths), markup=False)

    def action_inject(self) -> None:
        """Ask whether to bring hooks into a training that was attached to."""
        from tuimon.views.tui.sheets.sheet import ask_to_inject

        if self.monitor.hooks is not None:
            ask_to_inject(self, self.monitor.hooks)

    def action_profile(self, mode: Mode) -> None:
        """Show where the time of the chosen thread goes; without one, of the thread that the verdict blames."""
        from tuimon.views.tui.profile.profile_pane import blamed

        profile, session = self.board.profile, self.monitor.session
        is_open = profile.display and profile.scope is not None
        row, place = None if is_open else self.board.threads.chosen(), None
        found = blamed(session, self.monitor.findings) if row is None and not is_open else None
        if found is not None:
            row, place = found
        if not is_open:
            profile.phase = None
        self.board.zoom("profile")
        profile.open(mode, row, session, place=place, closeup=self.monitor.closeup)
        self.screen.set_focus(profile)

    async def action_ranks(self) -> None:
        """Show the ranks of the training, a row each, and the other trainings of the run."""
        if self.board.zoomed == "ranks":
            await self.action_step_back()
            return
        self.board.zoom("ranks")
        self.board.ranks.update_state(parts_of(self.monitor.session.shown()), self.monitor.findings)
        self.board.ranks.redraw(force=True)
        self.screen.set_focus(self.board.ranks)

    async def on_ranks_pane_picked(self, message: RanksPane.Picked) -> None:
        """Show the chosen process in all panes."""
        self.monitor.session.focus_on(message.pid)
        await self.action_step_back()
        self._show()

    def action_move(self, rows_down: int) -> None:
        """Without a focus, move among the threads."""
        self.screen.set_focus(self.board.threads)  # unlike focus(), before the next key
        self.board.threads.action_move(rows_down)

    def action_copy(self) -> None:
        """Copy the verdict, or the finding that its sheet has chosen, as Markdown, through the terminal (OSC 52)."""
        self.copy_to_clipboard("\n".join(markdown_lines(self._finding())) + "\n")
        self.notify("copied as Markdown: verdict, place and fix", markup=False)

    def action_edit(self) -> None:
        """Open the place of the same finding in the user's editor, which has the terminal until it ends."""
        place = self._finding().where[0]
        command = editor_command(os.environ, place.file, place.line)
        if not os.path.isfile(place.file):
            self.notify(f"{code_place(place)} is not on this machine", severity="warning", markup=False)
        elif command is None:
            self.notify("no editor found: set EDITOR", severity="warning", markup=False)
        elif not self._is_editing:
            self._is_editing = True
            self.run_worker(self._edit(command))

    async def _edit(self, command: Sequence[str]) -> None:
        """Run an editor; the app's ticks go on."""
        try:
            with self.suspend():
                await asyncio.to_thread(subprocess.call, command)
        except OSError:
            self.notify(f"cannot run {plain(command[0])}: see EDITOR", severity="warning", markup=False)
        finally:
            self._is_editing = False

    def _finding(self) -> Finding:
        from tuimon.views.tui.sheets.findings_sheet import FindingsSheet

        chosen = self.screen.rows.selected if isinstance(self.screen, FindingsSheet) else None
        return chosen or self.monitor.findings[0]

    def action_pause(self) -> None:
        """Freeze the screen, or let it go on."""
        title = self.board.title_line
        title.paused = not title.paused
        title.redraw(force=True)

    def action_sort(self) -> None:
        self.board.threads.next_sort()

    async def action_filter(self) -> None:
        """Open the input for the text to filter threads by."""
        await self.board.open_filter()

    def action_zoom(self) -> None:
        """Show the focused pane alone, or all panes again."""
        focused = self.focused.id if self.focused else None
        self.board.zoom(None if self.board.zoomed or focused not in PANES or focused == "verdict" else focused)

    async def action_step_back(self) -> None:
        """End the zoom, else clear the filter and close its input."""
        if self.board.zoomed and not self.board.query("#filter"):
            self.board.zoom(None)
        else:
            self.board.threads.filter_by("")
            await self.board.close_filter()

    def action_toggle_pane(self, name: str) -> None:
        self.board.toggle(name)


def run_app(
    monitor: Monitor,
    refresh_s: float = 0.5,
    signals: LeaveSignals | None = None,
    begin: Callable[[], None] = lambda: None,
) -> AppOutcome:
    """Run the app until it is left; ``begin`` is called once the first frame is drawn."""
    app = TuimonApp(monitor, refresh_s, signals=signals, begin=begin)
    try:
        leave = app.run()
    except (OSError, termios.error):
        if not is_terminal_lost(app):
            raise
        leave = None
    finally:
        reset_job_control()
    if is_terminal_lost(app):
        return AppOutcome(128 + signal.SIGHUP, terminal_lost=True)
    # without a result the app failed; Textual has shown why, and the run is not harmed
    return leave or AppOutcome(app.return_code or 1, closing_line(monitor))


def is_terminal_lost(app: TuimonApp) -> bool:
    """True if the terminal was lost, whether the app has noticed it or not."""
    return app.terminal_lost or not sys.__stdin__ or not sys.__stdin__.isatty()


def editor_command(environ: Mapping[str, str], file: str, line: int) -> list[str] | None:
    """The command that opens a line in ``VISUAL``, ``EDITOR`` or else a usual editor; None if there is no editor."""
    named = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or "")
    editor = named or [name for name in _USUAL if shutil.which(name, path=environ.get("PATH"))][:1]
    if not editor:
        return None
    before = _FILE_LINE.get(os.path.basename(editor[0]))
    return [*editor, f"+{line}", file] if before is None else [*editor, *before, f"{file}:{line}"]
