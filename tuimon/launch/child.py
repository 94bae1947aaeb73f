"""The launched process: started with our injection, monitored, and independent of tuimon once it runs; its output.

Outputs lie in a folder that is private to the user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from tuimon.agent import AGENT_FOLDER
from tuimon.agent.private import refusal
from tuimon.errors import LaunchError
from tuimon.proc import procfs
from tuimon.text import plain

#: Signals in order, each with the seconds until the next: Python turns SIGINT into KeyboardInterrupt, so that scripts
#: write their checkpoint; SIGTERM is what schedulers send; SIGKILL cannot be refused.
STAGES: tuple[tuple[signal.Signals, float], ...] = (
    (signal.SIGINT, 5.0),
    (signal.SIGTERM, 5.0),
    (signal.SIGKILL, 0.0),
)


class Ending:
    """Ends a run by ever stronger signals. It has no clock: call ``step`` every tick while the run lives."""

    def __init__(self, send: Callable[[signal.Signals], None], waited_s: Callable[[], float] = lambda: 0.0) -> None:
        """``waited_s``: for how long the run has waited for a core, which is added to the time for each signal."""
        self._send = send
        self._waited_s = waited_s
        self._next = 0
        self._due_s: float | None = None  # without what it has waited

    def next_in_s(self, now_s: float) -> float | None:
        """Seconds until the next signal; None when there is none left."""
        if self._next >= len(STAGES):
            return None
        return 0.0 if self._due_s is None else max(self._due_s + self._waited_s() - now_s, 0.0)

    def text(self, now_s: float) -> str:
        """The last signal and the time of the next: ``sent SIGINT; SIGTERM in 5 s``."""
        left_s = self.next_in_s(now_s)
        done = f"sent {STAGES[self._next - 1][0].name}" if self._next else "ending the run"
        return done if left_s is None else f"{done}; {STAGES[self._next][0].name} in {left_s:.0f} s"

    def step(self, now_s: float) -> signal.Signals | None:
        """Send the signal that is due at ``now_s`` (monotonic) and return it; None when none is due."""
        if self.next_in_s(now_s) != 0.0:
            return None
        number, wait_s = STAGES[self._next]
        self._next += 1
        self._due_s = now_s + wait_s - self._waited_s()
        self._send(number)
        return number


INJECT_DIRECTORY = os.path.join(AGENT_FOLDER, "inject")


class ExitStatus(Struct, frozen=True, gc=False):
    """How a process ended; ``exit_code`` is 128+n for signal n, None when it cannot be known."""

    exit_code: int | None
    signal: str | None


def new_run_id() -> str:
    """An id for a run, unique on this machine; its processes have it in their environment."""
    return os.urandom(6).hex()  # as secrets.token_hex, which loads all of OpenSSL: 4 MB


def launch_environment(run_id: str, output: str | None, *, markers: bool, memory: bool = False) -> dict[str, str]:
    """The environment of a launched run: the user's own, with variables that make its Pythons write markers."""
    env = dict(os.environ)
    user_path = [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part != INJECT_DIRECTORY]
    if user_path == [""]:  # unset or empty; a lone empty entry would put the working directory on the path
        user_path = []
    env["PYTHONPATH"] = os.pathsep.join([INJECT_DIRECTORY, *user_path])
    env["TUIMON_RUN"] = run_id
    if env.get("TUIMON_RING_DIR"):  # the training may change its working directory
        env["TUIMON_RING_DIR"] = os.path.abspath(env["TUIMON_RING_DIR"])
    for name in ("TUIMON_OUTPUT", "TUIMON_MARKERS", "TUIMON_MONITOR", "TUIMON_MEMORY"):  # of an enclosing tuimon run
        env.pop(name, None)
    if not markers:
        env["TUIMON_MARKERS"] = "0"
    if memory:
        env["TUIMON_MEMORY"] = "1"
    pid = os.getpid()
    with contextlib.suppress(OSError):  # names this process to those it starts: pid, start time, pid namespace
        env["TUIMON_MONITOR"] = f"{pid}-{procfs.start_ticks(pid)}-{os.readlink('/proc/self/ns/pid')}"
    if output is not None:  # the full screen: it may be left, and another tuimon attach
        env["TUIMON_OUTPUT"] = output
        # Without a terminal Python would buffer its output in blocks of 8 KiB and the pane would stand still.
        env.setdefault("PYTHONUNBUFFERED", "1")
    return env


class Launched:
    """A process that tuimon started and that goes on when tuimon ends, however it ends.

    No pipes and no parent-death signal tie it to us. With ``output`` it has a session of its own and writes
    to that file; without, it inherits our standard streams and process group.
    """

    def __init__(
        self,
        argv: Sequence[str],
        run_id: str,
        *,
        output: str | None = None,
        markers: bool = True,
        memory: bool = False,
    ) -> None:
        """Start it. Raises LaunchError when the operating system refuses."""
        self.argv = list(argv)
        self.run_id = run_id
        self.output = output
        self._ended: ExitStatus | None = None
        env = launch_environment(run_id, output, markers=markers, memory=memory)
        try:
            self._process = self._start(env)
        except OSError as error:
            raise _launch_error(self.argv[0], error) from error
        self.pid = self._process.pid
        self.ending = Ending(self._signal_group, lambda: procfs.waited_s(self.pid))

    def _start(self, env: dict[str, str]) -> subprocess.Popen[bytes]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self.output, flags, 0o600) if self.output is not None else None
        xfsz = signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, too
        try:
            return subprocess.Popen(
                self.argv,
                env=env,
                stdin=None if file is None else subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=file is not None,
                close_fds=False,
                restore_signals=not _inherited_ignored_sigpipe(),
            )
        finally:
            signal.signal(signal.SIGXFSZ, xfsz)
            if file is not None:
                os.close(file)

    def poll(self) -> ExitStatus | None:
        """How it ended; None while it runs."""
        if self._ended is None:
            code = self._process.poll()
            if code is not None:
                self._ended = _ended(code)
        return self._ended

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; whether it has ended."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def forward(self, number: int) -> None:
        """Pass on a signal that only tuimon received."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._process.send_signal(number)

    def is_alive(self) -> bool:
        """True if it, or another process of the session it was given, is still there."""
        if self.poll() is None or self.output is None:
            return self._ended is None
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def continue_end(self, now_s: float) -> signal.Signals | None:
        """One step of ending the run: SIGINT, SIGTERM, SIGKILL to its group; returns the signal sent now, if any."""
        if not self.is_alive():
            return None
        return self.ending.step(now_s)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.output is None:  # it shares our group: only the process itself
                self.forward(number)
                return
            os.killpg(self.pid, number)
            if number != signal.SIGKILL:
                os.killpg(self.pid, signal.SIGCONT)  # a stopped process would not see it


#: Programs that ignore SIGPIPE only if configured to, and then make all programs that they start ignore it, as systemd
#: does for its services. Python and Rust (``uv run``) ignore it for themselves alone.
_HANDING_ON = {b"sh", b"dash", b"bash", b"zsh", b"ksh", b"busybox", b"systemd"}


def _inherited_ignored_sigpipe() -> bool:
    """True if tuimon's parent shows that SIGPIPE was ignored before tuimon started: Python always ignores it."""
    parent = os.getppid()
    name = (procfs.read_bytes(f"/proc/{parent}/comm") or b"").strip()
    return name in _HANDING_ON and signal.SIGPIPE in procfs.read_signals(parent, "SigIgn")


def _ended(code: int) -> ExitStatus:
    if code >= 0:
        return ExitStatus(code, None)
    try:
        name = signal.Signals(-code).name
    except ValueError:  # real-time signals have no names
        name = f"signal {-code}"
    return ExitStatus(128 - code, name)


def _launch_error(program: str, error: OSError) -> LaunchError:
    shown = plain(program)
    match error.errno:
        case errno.ENOEXEC:
            return LaunchError(
                f"this system cannot execute {shown}",
                f"If it is a script, name its interpreter: tuimon run bash {shown}",
            )
        case errno.ENOENT:
            return LaunchError(
                f"{shown} could not be started: its interpreter is missing",
                f"Check the #! line of {shown}, or name the interpreter: tuimon run python {shown}",
            )
        case errno.E2BIG:
            return LaunchError(f"{shown} could not be started: too many arguments", None)
    return LaunchError(f"{shown} could not be started: {error.strerror or error}", None)


#: Seconds since its last write after which the output of a run is removed when another starts.
KEEP_S = 14 * 86400


def _folders() -> list[str]:
    """The folders for outputs: below ``$XDG_STATE_HOME`` or ``~/.local/state``, else in the temporary folder."""
    temporary = os.path.join(tempfile.gettempdir(), f"tuimon-{os.getuid()}")
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    folders = [os.path.join(base, "tuimon", "runs"), os.path.join(temporary, "runs")]
    return [folder for folder in folders if os.path.isabs(folder)]


def _make(folder: str) -> None:
    """Make ``folder`` and those above it that are missing, for this user alone. Raises OSError."""
    if not os.path.isdir(folder):
        _make(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def state_directory() -> str:
    """The folder for outputs of runs. Raises LaunchError with the reasons when none can be used."""
    troubles = []
    for folder in _folders():
        try:
            _make(folder)
            trouble = refusal(folder)
        except OSError as error:
            trouble = f"{folder}: {error.strerror}"
        if trouble is None and os.access(folder, os.W_OK | os.X_OK):
            return folder
        troubles.append(trouble or f"{folder} cannot be written")
    raise LaunchError(
        f"there is no place for the run's output: {plain('; '.join(troubles))}",
        "Set XDG_STATE_HOME to a folder that only you can write to, or use --headless.",
    )


def output_path(run_id: str) -> str:
    """Path for the output of a new run; removes the outputs of runs that ended long ago."""
    folder = state_directory()
    oldest = time.time() - KEEP_S
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(".out"):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)
    return os.path.join(folder, f"{run_id}.out")


def own_output(path: str | None, run_id: str | None, owner: int) -> str | None:
    """The output that a process of user ``owner`` names, if it is the file that ``output_path`` made for that run.

    A process may name any file, and what it names is read with tuimon's rights.
    """
    name = f"{run_id}.out"
    if not path or owner != os.getuid() or os.path.basename(path) != name:
        return None
    for folder in _folders():
        own = os.path.join(folder, name)
        if own != path:
            continue
        with contextlib.suppress(OSError, ValueError):
            info = os.lstat(own)
            if stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid() and refusal(folder) is None:
                return own
    return None
