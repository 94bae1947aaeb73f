"""How the app is left: by a key, by a signal, and with what exit code and closing line."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType

from tuimon.launch.signals import LeaveSignals
from tuimon.views.format import plain
from tuimon.views.state_text import how_ended
from tuimon.views.tui.sheets.dialogs import Choice, QuitDialog
from tuimon.views.tui.terminal_app import Capabilities, TerminalApp

if TYPE_CHECKING:
    from tuimon.monitor.monitor import Monitor


class Leave(NamedTuple):
    """How the app was left: tuimon's exit code, and the line to print on the restored terminal."""

    exit_code: int
    message: str | None = None
    terminal_lost: bool = False


class LeavableApp(TerminalApp[Leave]):
    """An app beside a run, which goes on when the app is left unless the user has it ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+q", "leave", show=False),
        Binding("ctrl+c", "leave", show=False, priority=True),
    ]

    def __init__(self, monitor: Monitor, capabilities: Capabilities | None, signals: LeaveSignals | None) -> None:
        super().__init__(capabilities)
        self.monitor = monitor
        self._signals = signals or LeaveSignals()

    def on_mount(self) -> None:
        """Be woken by signals."""
        # not add_signal_handler: with the loop its handlers end, and the second SIGHUP of a shell would kill us
        self._signals.notify = partial(asyncio.get_running_loop().call_soon_threadsafe, self._check_signals)
        self._check_signals()

    def on_unmount(self) -> None:
        """No signal wakes us any more."""
        self._signals.notify = None

    def _check_signals(self) -> None:
        """A signal to leave: give the terminal back as it was; a training that was started here goes on."""
        if self._signals.hung_up:
            self.leave_lost_terminal()
        elif self._signals.ended_by is not None:
            self.exit(Leave(128 + self._signals.ended_by, what_goes_on(self.monitor)))

    async def action_leave(self) -> None:
        """Leave the app; while a launched run goes on, open the quit dialog."""
        monitor = self.monitor
        if isinstance(self.screen, QuitDialog):
            self.screen.dismiss("leave")
        elif monitor.launched is not None and not monitor.ended:
            pid = monitor.launched.pid

            def chosen(choice: Choice | None) -> None:
                if choice == "leave":
                    self.exit(Leave(0, goes_on(pid)))
                elif choice == "ended":
                    self.exit(self._end_of_run())

            self.push_screen(QuitDialog(monitor), chosen)
        else:
            self.exit(self._end_of_run())

    def _end_of_run(self) -> Leave:
        """How the app is left when the run is over or was not launched here."""
        end = self.monitor.session.exit
        code = self.monitor.exit_code or 0 if self.monitor.launched is not None else 0
        if end is not None and end.has_failed:
            message = f"The training {'was ' if end.signal else ''}{how_ended(end)}"
            return Leave(code, "\n".join(filter(None, (message, plain(end.last_line or "")))))
        return Leave(code, f"The training ended with exit code {code}" if code else None)


def what_goes_on(monitor: Monitor) -> str | None:
    """The closing line about a training that was launched here and has not ended; None without one."""
    return goes_on(monitor.launched.pid) if monitor.launched is not None and not monitor.ended else None


def goes_on(pid: int) -> str:
    """The closing line about a training that is left running."""
    return f"The training goes on as pid {pid}. Come back with: tuimon attach {pid}"
