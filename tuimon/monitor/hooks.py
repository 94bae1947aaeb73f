"""The hooks in trainings that tuimon has attached to: brought in on request, and withdrawn when it leaves."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from tuimon.errors import CannotInject, TuimonError
from tuimon.launch.inject import INJECT_S, inject
from tuimon.proc import procfs
from tuimon.proc.processes import has_torch, is_fork_of, waits_for_child
from tuimon.proc.ring_facts import read_ring_facts
from tuimon.sources.control_channel import HookHolder, withdraw_hooks
from tuimon.sources.processes.source import Descendants, parent_of

#: The text that users read before they decide to bring the hooks in.
RISK = (
    "stops the training for about 0.1 s while a debugger loads tuimon's hooks: steps and phases are then measured, not "
    "inferred. The hooks are removed when you leave."
)
#: Seconds for further processes to answer once one has its hooks: a launcher that waits for its ranks never does.
_LAUNCHER_S = 5.0


class Hooks:
    """The hooks of one training and its ranks. ``bring_in`` and ``withdraw`` block: do not call them while drawing."""

    def __init__(self, pid: int, *, keep: bool = False) -> None:
        """``keep``: leave the hooks in place when tuimon leaves."""
        self._pid = pid
        self._keep = keep
        self._ours: list[int] = []
        self._holding = HookHolder()  # hooks of ours are withdrawn by themselves if this process is killed
        self._leaving = False
        self._working = threading.Lock()

    def are_missing(self) -> bool:
        """True if the process has no markers."""
        return not _has_ring(self._pid) and not self._ours

    def bring_in(self) -> str:
        """Bring the hooks into the process and its ranks; returns a line on the outcome. Raises CannotInject."""
        with self._working:
            begun_s = time.monotonic()
            refused: list[CannotInject] = []
            present = 0
            for pid in trainings_of(self._pid):
                try:
                    timeout_s = _LAUNCHER_S if self._ours or present else INJECT_S
                    if not inject(pid, timeout_s=timeout_s, stop=lambda: self._leaving):
                        self._ours.append(pid)
                        if not self._keep:
                            self._holding.hold(pid)
                    elif not self._keep and self._holding.hold(pid, only_left=True):  # left by a tuimon that was killed
                        self._ours.append(pid)
                    else:
                        present += 1
                except CannotInject as error:
                    refused.append(error)
            if refused and not (self._ours or present):
                raise refused[0]
            if not self._ours:
                return "the hooks are already there: tuimon did not bring them in, so they stay when you leave"
            took_s = time.monotonic() - begun_s
            into = ", ".join(map(str, self._ours))
            rest = f"; not all: {refused[0].message}" if refused else ""
            return f"hooks brought into process {into} in {took_s:.1f} s: markers from its next step on{rest}"

    def withdraw(self) -> str | None:
        """Withdraw our own hooks, and bring in no more; returns a line for the user, or None."""
        self._leaving = True
        with self._working:
            try:
                if not self._ours:
                    return None
                if self._keep:
                    return "the hooks stay in the training (--keep-hooks)"
                left = [pid for pid in self._ours if not _withdrawn(pid)]
                self._ours = []
                if left:
                    pids = ", ".join(map(str, left))
                    return (
                        f"process {pids} has run no backward pass: the first one after half a minute removes its hooks"
                    )
                return "the hooks are withdrawn"
            finally:
                self._holding.close()


def trainings_of(pid: int) -> list[int]:
    """The ranks of a training: the descendants of a process that have torch, except forked workers; and the process.

    The process itself comes last. It is left out if it only waits for its ranks: its main thread would not answer.
    """
    children = ((child, parent_of(child)) for child in Descendants().find([pid]))
    found = [child for child, parent in children if parent and not is_fork_of(child, parent) and has_torch(child)]
    is_launcher = bool(found) and (not has_torch(pid) or waits_for_child(pid))
    return found if is_launcher else [*found, pid]


def _withdrawn(pid: int) -> bool:
    if not _has_ring(pid):
        return True
    with suppress(TuimonError):
        withdraw_hooks(pid, 3.0)  # until the training's next backward pass
        return True
    return not _has_ring(pid)


def _has_ring(pid: int) -> bool:
    ticks = procfs.start_ticks(pid)
    return ticks is not None and read_ring_facts(pid, ticks) is not None
