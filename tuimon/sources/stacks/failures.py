"""Processes that py-spy could not read: explains its messages to the user, and decides when to retry."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set

from msgspec import Struct

from tuimon.installation import install_command
from tuimon.proc import processes, procfs
from tuimon.proc.processes import PTRACE_IN_CONTAINER, in_container, is_free_threaded
from tuimon.records import Notice
from tuimon.sources.base import RETRY_S, Problem
from tuimon.sources.stacks.schedule import ProcessKey
from tuimon.text import plain


def no_binary() -> Problem:
    """The problem of a missing py-spy."""
    return Problem(
        "no stack samples: py-spy was not found next to tuimon, on PATH or among the installed packages",
        f"Install it with tuimon: {install_command('py-spy')}",
        denied=True,
    )


def explain(message: str, pid: int) -> Problem:
    """Translate the output of a py-spy that failed on ``pid``."""
    text = message.lower()
    if "permission denied" in text or "operation not permitted" in text:
        return _denied_problem(pid)._replace(denied=_owner(pid) == os.geteuid())
    if is_free_threaded(pid):
        return Problem(
            f"no stack samples: py-spy cannot read free-threaded Python ({plain(processes.program_name(pid))})",
            "A training under tuimon run samples its own stacks; markers, threads and GPUs are shown without them too",
            denied=_owner(pid) == os.geteuid(),
        )
    if "unsupported version" in text:
        named = message.partition("Unsupported version of Python: ")[2].split()
        version = plain(named[0])[:20] if named else "of this process"
        return Problem(f"no stack samples: py-spy does not know Python {version}", f"Upgrade py-spy: {_upgrade()}")
    if "failed to find a python interpreter" in text or "both python and libpython are invalid" in text:
        return Problem(
            f"no stack samples: py-spy cannot read the Python of process {pid}",
            f"It gives up if a thread is more than 4,000 calls deep; otherwise upgrade py-spy: {_upgrade()}",
            passing=True,
        )
    if "failed to find python version" in text or "no python processes found" in text:
        return Problem(
            f"no stack samples: process {pid} is not a Python interpreter, or has not started yet",
            "If it runs Python inside another program (embedded or frozen), py-spy cannot read it",
            passing=True,
        )
    return Problem(
        f"no stack samples of process {pid}: {first_line(message)}",
        "Try it alone: py-spy dump --pid " + str(pid),
        passing=True,
    )


def _denied_problem(pid: int) -> Problem:
    owner = _owner(pid)
    if owner is not None and os.geteuid() not in (0, owner):
        message = f"no stack samples: process {pid} belongs to another user (uid {owner})"
        return Problem(message, "Run tuimon as that user, or with sudo")
    scope = yama_scope()
    if in_container():
        return Problem(
            f"no stack samples: ptrace of process {pid} is denied in this container",
            PTRACE_IN_CONTAINER,
            passing=scope == 1,  # as below
        )
    if scope in YAMA_DENIES:
        message, hint = YAMA_DENIES[scope]
        return Problem(f"no stack samples: {message}", hint)
    if scope == 1:
        return Problem(
            f"no stack samples: ptrace of process {pid} is denied (Yama scope 1: only its parents may)",
            "Start the training with tuimon run, or allow it: sudo sysctl kernel.yama.ptrace_scope=0",
            passing=True,  # a process under tuimon run allows it once it has started
        )
    return Problem(
        f"no stack samples: ptrace of process {pid} is denied",
        "A security profile (seccomp, SELinux, AppArmor) or a process that made itself undumpable forbids it",
    )


#: Scopes of Yama in which no process may be read, as a phrase, and what to do.
YAMA_DENIES = {
    2: ("ptrace is for root only (Yama scope 2)", "Run tuimon with sudo"),
    3: ("this kernel forbids ptrace (Yama scope 3)", "Only a reboot can change that"),
}


def _upgrade() -> str:
    return install_command("py-spy", upgrade=True)


def yama_scope() -> int | None:
    """Yama's ptrace scope; None on a kernel without Yama."""
    raw = procfs.read_bytes("/proc/sys/kernel/yama/ptrace_scope", 16)
    return int(raw) if raw and raw.strip().isdigit() else None


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith("Error")), lines[0] if lines else "py-spy gave no reason")
    return plain(first.removeprefix("Error:").strip())[:200]


#: A failing process is tried again after this long, doubled each time up to the longest; a problem that may pass by
#: itself (a Python that has not started yet) is tried more often.
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_LONGEST_PASSING_RETRY_S = 5.0
#: A problem that may pass by itself is reported from this failure in a row on.
_REPORTED_FROM = 3
#: Stands for py-spy itself.
NO_PROCESS: ProcessKey = (0, None)
_SAMPLED_INSIDE = (
    "stacks are sampled in-process, by the training itself: Python frames only, without DataLoader workers and the"
    " holder of the GIL; samples are taken where the GIL is released"
)


class _Failure(Struct, frozen=True, gc=False):
    problem: Problem
    times: int  # in a row
    retry_s: float


class SamplingFailures:
    """The present failures, by process."""

    def __init__(self, source: str) -> None:
        """``source``: the name in notices."""
        self._source = source
        self._failures: dict[ProcessKey, _Failure] = {}
        self._reported: Problem | None = None

    def __contains__(self, key: ProcessKey) -> bool:
        return key in self._failures

    def add_failure(self, key: ProcessKey, problem: Problem, now_s: float) -> None:
        """Add a failed window of a process, or a py-spy that was not found or does not start."""
        before = self._failures.get(key)
        times = before.times + 1 if before else 1
        longest_s = _LONGEST_PASSING_RETRY_S if problem.passing else _LONGEST_RETRY_S
        wait_s = RETRY_S if key == NO_PROCESS else min(_FIRST_RETRY_S * 2.0 ** (times - 1), longest_s)
        self._failures[key] = _Failure(problem, times, now_s + wait_s)

    def clear(self, key: ProcessKey) -> None:
        """Forget the failures of a process that was sampled, or has ended."""
        self._failures.pop(key, None)

    def forget_others(self, wanted: Set[ProcessKey]) -> None:
        """Forget the failures of processes that are no longer sampled."""
        kept = wanted | {NO_PROCESS}
        self._failures = {key: failure for key, failure in self._failures.items() if key in kept}

    def waits(self, key: ProcessKey, now_s: float) -> bool:
        """True if it is too early to sample this process again."""
        failure = self._failures.get(key)
        return failure is not None and now_s < failure.retry_s

    def denied(self, key: ProcessKey) -> bool:
        """True if py-spy may not read this process, or there is none."""
        failure = self._failures.get(key) or self._failures.get(NO_PROCESS)
        return failure is not None and failure.problem.denied and _is_reported(failure)

    def notices(
        self,
        now_s: float,
        in_process: Set[ProcessKey] = frozenset(),
        others: Mapping[ProcessKey, Problem] | None = None,
    ) -> Iterable[Notice]:
        """A problem when it is new, an "ok" when the last one is over.

        ``in_process``: sampled by their agent in place of py-spy; ``others``: why another process is not.
        """
        problems = []
        for key, failure in self._failures.items():
            problem = failure.problem
            if _is_reported(failure) and (key in in_process or (key == NO_PROCESS and in_process)):
                cause = problem.message.removeprefix("no stack samples: ")
                problems.append(Problem(f"{_SAMPLED_INSIDE}; {cause}", problem.hint, expected=True))
            elif _is_reported(failure):
                why = (others or {}).get(key)  # the agent does not sample in py-spy's place
                problems.append(problem._replace(message=f"{problem.message}; {why.message}") if why else problem)
        first = problems[0] if problems else None
        if self._reported in (first, *problems):
            return
        self._reported = first
        if first is None:
            yield Notice(t=now_s, pid=0, source=self._source, level="ok", message="stack samples are being taken")
        else:
            yield first.notice(self._source, now_s)


def _is_reported(failure: _Failure) -> bool:
    return not failure.problem.passing or failure.times >= _REPORTED_FROM
