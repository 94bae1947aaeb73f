"""Brings the agent into a training that runs, whichever way its Python allows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import NamedTuple

from tuimon.agent.folder import AGENT_FOLDER
from tuimon.errors import CannotInject
from tuimon.launch.injection import gdb, remote_exec
from tuimon.launch.injection.request import Answer, Request
from tuimon.launch.injection.target import RUN_INSTEAD, Target, examine, shared
from tuimon.proc import procfs
from tuimon.proc.processes import is_alive
from tuimon.proc.ring_facts import read_ring_facts, ring_folders

#: How long the main thread may take to come back to Python.
ANSWER_S = 30.0


class Injected(NamedTuple):
    """``was_there``: the process had markers before."""

    was_there: bool


def never() -> bool:
    """Do not stop."""
    return False


def inject(pid: int, *, timeout_s: float = ANSWER_S, stop: Callable[[], bool] = never) -> Injected:
    """Have the process write markers from its next step on. Raises CannotInject; then nothing has changed.

    ``stop``: whether to give up waiting for its main thread.
    """
    ticks = procfs.start_ticks(pid)
    if ticks is not None and read_ring_facts(pid, ticks) is not None:
        return Injected(was_there=True)
    try:
        return _bring_in(pid, timeout_s, lambda: stop() or not is_alive(pid, ticks))
    except CannotInject:
        if ticks is None or is_alive(pid, ticks):
            raise
        raise CannotInject(f"process {pid} has ended meanwhile", "List the running trainings: tuimon ps") from None


def _bring_in(pid: int, timeout_s: float, stop: Callable[[], bool]) -> Injected:
    target = examine(pid, AGENT_FOLDER)
    rings = shared(pid, ring_folders())
    place = shared(pid, [tempfile.gettempdir(), "/dev/shm"])[0]
    by_gdb = target.minor < remote_exec.FIRST_MINOR
    request = Request(AGENT_FOLDER, place, rings, "begin_in_thread" if by_gdb else "begin")
    try:
        if by_gdb:
            gdb.schedule(target, request.command(), request.waited_for)
        else:
            remote_exec.schedule(target, request.script)
        return _result(target, request.wait(timeout_s, stop), timeout_s)
    finally:
        request.close()


def _result(target: Target, answer: Answer | None, timeout_s: float) -> Injected:
    pid = target.pid
    if answer is None:
        raise CannotInject(
            f"the main thread of process {pid} did not come back to Python within {timeout_s:.0f} s",
            f"It is in a long call, or waits while other threads train: try again later. {RUN_INSTEAD}",
        )
    match answer.status:
        case "installed" | "present":
            return Injected(was_there=answer.status == "present")
        case "no torch":
            raise CannotInject(f"process {pid} has not imported torch yet", "Attach again once it trains.")
        case "no ring":
            raise CannotInject(
                f"there is no room for markers: {answer.reason}",
                f"Raise the limit: prlimit --pid {pid} --fsize=unlimited"
                if "ulimit -f" in (answer.reason or "")
                else "Free some of /dev/shm, or set TMPDIR.",
            )
        case "retry":
            raise CannotInject(f"process {pid} is in the midst of an import or a step", "Try again.")
    raise CannotInject(f"the agent does not run in process {pid}: {answer.reason}", RUN_INSTEAD)
