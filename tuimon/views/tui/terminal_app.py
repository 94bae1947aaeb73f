"""The base of tuimon's apps, and their terminal, which may stall for hours, stop and continue them, or be lost."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from textual import on
from textual.app import App, ReturnType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import TextSelected
from textual.message import Message

from tuimon.launch.signals import is_group_orphaned
from tuimon.views.tui.drawing import palette
from tuimon.views.tui.drawing.canvas import Glyphs, Terminal, glyphs_of

if TYPE_CHECKING:
    from textual.app import App

#: Writes that may wait for the terminal. Textual's queue holds 30 and blocks the app when it is full; leaving
#: the full screen takes about 15 of them.
WAITING_LIMIT = 12
#: Seconds that leaving the full screen waits for a terminal that takes nothing.
CLOSE_S = 1.0


class TerminalOutput:
    """The file that Textual's writer thread writes to. Never raises; counts the writes that wait."""

    def __init__(self, file: TextIO, on_lost: Callable[[], None], on_stale: Callable[[], None]) -> None:
        """``on_lost``: called when the terminal is gone; ``on_stale``: when it takes output again, and lacks some."""
        self._handle = file.fileno()
        self._encoding = file.encoding
        self._errors = file.errors or "replace"
        self._on_lost = on_lost
        self._on_stale = on_stale
        self._lock = threading.Lock()
        self._waiting = 0
        self._stale = False
        self._lost = False
        self._parts: list[str] = []

    def fileno(self) -> int:
        return self._handle

    def admit(self, *, always: bool = False) -> bool:
        """Count one more write; False if it is to be left out, as the terminal has not taken earlier writes."""
        with self._lock:
            if self._waiting >= WAITING_LIMIT and not always:
                self._stale = True
                return False
            self._waiting += 1
            return True

    def write(self, text: str) -> None:
        """Take text, to be written by ``flush``."""
        self._parts.append(text)

    def flush(self) -> None:
        """Write what was taken; waits as long as the terminal takes nothing."""
        count = len(self._parts)
        data = "".join(self._parts).encode(self._encoding, self._errors)
        self._parts.clear()
        try:
            while data and not self._lost:
                try:
                    data = data[os.write(self._handle, data) :]
                except BlockingIOError:  # another program that shares the terminal has made it non-blocking
                    select.select([], [self._handle], [], 1.0)
        except OSError:  # EIO after a hangup
            self._lost = True
            self._on_lost()
        with self._lock:
            self._waiting -= count
            stale = self._stale and self._waiting == 0
            if stale:
                self._stale = False
        if stale and not self._lost:
            self._on_stale()


class ExitEvent(threading.Event):
    """The event that ends Textual's input thread; sets itself once the terminal is gone.

    A terminal that has hung up is ready to be read at all times, but yields nothing. The event stays set: the
    terminal's file descriptor may soon stand for another file, which that thread would read for ever.
    """

    def __init__(self, handle: int, on_lost: Callable[[], None]) -> None:
        super().__init__()
        self._handle = handle
        self._on_lost = on_lost

    def is_set(self) -> bool:
        """True if input is to end."""
        if super().is_set():
            return True
        terminal = select.poll()  # one a call: two threads poll, and one that waits locks its object
        terminal.register(self._handle, 0)
        if not terminal.poll(0):
            return False
        self.set()
        self._on_lost()
        return True


class TerminalDriver(LinuxDriver):
    """Textual's driver for terminals, which neither blocks, raises nor spins when the terminal stalls or is lost."""

    class Lost(Message):
        """The terminal is gone."""

    class Stale(Message):
        """The terminal may not show the last frame."""

    def __init__(
        self, app: App[object], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        """Arguments as Textual gives them."""
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._output = self._new_output()
        self._changes_modes = False
        self.exit_event = ExitEvent(self.fileno, self._report_lost)
        # Textual's own handlers write to queues immediately, wherever the app happens to be, even inside those queues
        self._continued = False
        signal.signal(signal.SIGTSTP, self._on_stop)
        signal.signal(signal.SIGCONT, self._on_continue)

    def write(self, data: str) -> None:
        """Write to the terminal; left out while it does not take what was written before."""
        if self._output.admit(always=self._changes_modes):
            super().write(data)

    def start_application_mode(self) -> None:
        """Take the terminal over; in the background, stop until tuimon is brought into the foreground."""
        if self._in_background():
            self._on_stop()
            return
        self._output = self._new_output()
        self._changes_modes = True
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual has not annotated it
        finally:
            self._changes_modes = False

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was, unless another program has taken it and set its modes."""
        self._changes_modes = True
        if self._in_background():
            self.attrs_before = None
        try:
            with _sigttou_blocked():
                super().stop_application_mode()
        finally:
            self._changes_modes = False

    def disable_input(self) -> None:
        """End input, and drop what was typed."""
        with _sigttou_blocked():
            super().disable_input()

    def close(self) -> None:
        """Write what is left, unless the terminal takes nothing."""
        closing = threading.Thread(target=super().close, name="tuimon-close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def run_input_thread(self) -> None:
        """Read keys until the app ends or the terminal is gone; what is not UTF-8 is ignored."""
        while True:
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue
            except OSError:  # EIO: nobody is left who could bring this process into the foreground
                self._report_lost()
            return

    def _new_output(self) -> TerminalOutput:
        output = TerminalOutput(sys.__stderr__ or sys.stderr, self._report_lost, self._report_stale)
        self._file: Any = output  # Any: Textual wants a TextIO, and uses write, flush and fileno
        return output

    def _report_lost(self) -> None:
        self._post(self.Lost())

    def _report_stale(self) -> None:
        self._post(self.Stale())

    def _post(self, message: Message) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._app.post_message(message)

    def _in_loop(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call)

    def _on_stop(self, *_: object) -> None:
        """SIGTSTP: raise it again, blocked, so that a SIGCONT before the process is ready to stop cancels it."""
        self._continued = False
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTSTP])
        signal.raise_signal(signal.SIGTSTP)
        self._in_loop(self._stop_process)

    def _on_continue(self, *_: object) -> None:
        self._continued = True
        self._in_loop(self._continue_process)

    def _stop_process(self) -> None:
        """Give the terminal back, then stop; go on immediately if SIGCONT has come, or nobody could send it."""
        if self._is_started:
            self.suspend_application_mode()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        # the process stops here, unless its process group is orphaned
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
        signal.signal(signal.SIGTSTP, self._on_stop)
        if self._continued or not is_group_orphaned():
            return  # SIGCONT has come; another thread may have taken it, so that its handler is still to run
        if self._in_background():
            self._report_lost()
        else:
            self._continue_process()

    def _continue_process(self) -> None:
        """SIGCONT: take the terminal over again.

        After SIGSTOP the terminal was never given back: its modes are no longer tuimon's, and Textual would start a
        second pair of threads and take tuimon's modes for the shell's.
        """
        if self._app._exit or not self._app.is_running or not self._auto_restart:
            # it leaves, has not begun, or an editor has the terminal
            return
        if self._is_started:
            self.suspend_application_mode()
        self.resume_application_mode()
        self._report_stale()

    def _in_background(self) -> bool:
        """True if another process group has the terminal.

        Setting modes from the background raises SIGTTOU in tuimon's whole process group: a child that it stops between
        fork and exec would block tuimon, and continuing tuimon would not continue that child.
        """
        try:
            return os.tcgetpgrp(self.fileno) != os.getpgrp()
        except OSError:  # lost, or no terminal
            return False

    @property
    def _is_started(self) -> bool:
        return self._key_thread is not None and self._key_thread.is_alive()


@contextmanager
def _sigttou_blocked() -> Iterator[None]:
    """Let this thread set the terminal's modes and drop its input in the background, too."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def reset_job_control() -> None:
    """Let SIGTSTP and SIGCONT stop and continue the process as usual, after the end of the app."""
    for number in (signal.SIGTSTP, signal.SIGCONT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])  # a SIGTSTP that came while the app ended stops it now


#: Shown in the place of a traceback.
REPLACED = "tuimon was upgraded or removed while this screen ran, and cannot go on: start tuimon again"


class Capabilities(NamedTuple):
    """The abilities of a terminal."""

    colours: Literal["none", "16", "many"] = "many"
    glyphs: Glyphs = "braille"


class TerminalApp(App[ReturnType]):
    """An app with our style sheet and themes, which degrades with its terminal."""

    CSS_PATH = Path(__file__).with_name("tuimon.tcss")  # a relative path would start at each subclass
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, capabilities: Capabilities | None = None) -> None:
        """``capabilities``: instead of what the terminal's environment shows."""
        no_color = "NO_COLOR" in os.environ  # before textual takes it out of the environment
        mono = capabilities.colours == "none" if capabilities else no_color
        super().__init__(ansi_color=True if mono else None)
        self.animation_level = "none"
        self._installed = _installation()
        self.terminal_lost = False
        if capabilities is None:
            glyphs = glyphs_of(os.environ, getattr(sys.__stderr__, "encoding", None) or "utf-8")
            few = self.console.color_system == "standard"
            capabilities = Capabilities("none" if mono else "16" if few else "many", glyphs)
        self.terminal = Terminal(capabilities.glyphs, mono)
        self._dark, self._light = palette.THEMES_16 if capabilities.colours == "16" else palette.THEMES
        self.register_theme(self._dark)
        self.register_theme(self._light)
        self.theme = self._dark.name
        self.set_class(capabilities.glyphs == "ascii", "-ascii")
        self.set_class(mono, "-mono")

    def get_driver_class(self) -> type[Driver]:
        """tuimon's driver for terminals, unless the environment names another."""
        driver = super().get_driver_class()
        return TerminalDriver if driver is LinuxDriver else driver

    def _handle_exception(self, error: Exception) -> None:
        """Show no traceback after an upgrade, but a message: modules imported since are of another version."""
        if _installation() == self._installed:
            super()._handle_exception(error)
        else:
            self._return_code = 1
            self.panic(REPLACED)

    @on(TerminalDriver.Lost)
    def leave_lost_terminal(self) -> None:
        """Leave: nobody can see or press anything any more."""
        self.terminal_lost = True
        self.exit()

    @on(TerminalDriver.Stale)
    def redraw_terminal(self) -> None:
        """Draw all of the screen again."""
        self.refresh()

    @on(TextSelected)
    def copy_selection(self) -> None:
        """Copy what the mouse has selected, as a terminal does for programs without a mouse."""
        if text := self.screen.get_selected_text():
            self.copy_to_clipboard(text)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """tuimon's colours, which Textual needs before the themes are known."""
        return palette.DEFAULTS

    def action_theme(self) -> None:
        """Change between the dark and the light theme."""
        self.theme = self._light.name if self.theme == self._dark.name else self._dark.name


def _installation() -> tuple[int, int] | None:
    """Changes when a package manager rewrites this file; None once it is removed."""
    try:
        found = Path(__file__).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
