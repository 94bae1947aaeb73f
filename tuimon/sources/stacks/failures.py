"""Processes that py-spy could not read: when to retry each, and what to report to the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from msgspec import Struct

from tuimon.records import Notice
from tuimon.sources.base import Problem
from tuimon.sources.stacks.schedule import ProcessKey

#: A failing process is tried again after this long, doubled each time up to the longest; a problem that may pass by
#: itself (a Python that has not started yet) is tried more often.
_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_LONGEST_PASSING_RETRY_S = 5.0
#: py-spy itself: when to search for it again, and when to try again to start it.
_SEARCH_AGAIN_S = 30.0
_START_AGAIN_S = 60.0
#: A problem that may pass by itself is reported from this failure in a row on.
_REPORTED_FROM = 3
#: Stands for py-spy itself.
_NO_PROCESS: ProcessKey = (0, None)


class _Failure(Struct, frozen=True, gc=False):
    problem: Problem
    times: int  # in a row
    retry_s: float


class SamplingFailures:
    """Present failures, by process; bounded by the processes that are sampled."""

    def __init__(self, source: str) -> None:
        """``source``: the name in notices."""
        self._source = source
        self._failures: dict[ProcessKey, _Failure] = {}
        self._reported: Problem | None = None

    def __contains__(self, key: ProcessKey) -> bool:
        return key in self._failures

    def add_failure(self, key: ProcessKey, problem: Problem, now_s: float) -> None:
        """Add a window of a process that has failed."""
        before = self._failures.get(key)
        times = before.times + 1 if before else 1
        longest_s = _LONGEST_PASSING_RETRY_S if problem.passing else _LONGEST_RETRY_S
        self._failures[key] = _Failure(problem, times, now_s + min(_RETRY_S * 2.0 ** (times - 1), longest_s))

    def clear(self, key: ProcessKey) -> None:
        """Forget the failures of a process that was sampled, or has ended."""
        self._failures.pop(key, None)

    def clear_gone(self, is_gone: Callable[[ProcessKey], bool]) -> None:
        """Forget the failures of processes that are no longer sampled."""
        for key in [key for key in self._failures if key != _NO_PROCESS and is_gone(key)]:
            del self._failures[key]

    def waits(self, key: ProcessKey, now_s: float) -> bool:
        """True if it is too early to try this process again."""
        failure = self._failures.get(key)
        return failure is not None and now_s < failure.retry_s

    def add_missing_binary(self, problem: Problem, now_s: float) -> None:
        """py-spy was not found."""
        self._failures[_NO_PROCESS] = _Failure(problem, 1, now_s + _SEARCH_AGAIN_S)

    def add_start_error(self, error: OSError, now_s: float) -> None:
        """py-spy could not be started."""
        problem = Problem(f"no stack samples: py-spy does not start: {error.strerror}")
        self._failures[_NO_PROCESS] = _Failure(problem, 1, now_s + _START_AGAIN_S)

    def clear_binary(self) -> None:
        """py-spy was found."""
        self.clear(_NO_PROCESS)

    def binary_waits(self, now_s: float) -> bool:
        """True if it is too early to search for py-spy again."""
        return self.waits(_NO_PROCESS, now_s)

    def denied_of(self, keys: Iterable[ProcessKey]) -> list[ProcessKey]:
        """The processes that py-spy may not read; all of them where there is no py-spy."""
        return [key for key in keys if self.denied(key)] if self._failures else []

    def denied(self, key: ProcessKey) -> bool:
        """True if py-spy may not read this process, or there is none."""
        failure = self._failures.get(key) or self._failures.get(_NO_PROCESS)
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
        problems = [
            _sampled_inside(failure.problem)
            if key in in_process or (key == _NO_PROCESS and in_process)
            else _explained(failure.problem, (others or {}).get(key))
            for key, failure in self._failures.items()
            if _is_reported(failure)
        ]
        problem = problems[0] if problems else None
        if self._reported in (problem, *problems):
            return
        self._reported = problem
        if problem is None:
            yield Notice(t=now_s, pid=0, source=self._source, level="ok", message="stack samples are being taken")
        else:
            yield problem.notice(self._source, now_s)


def _is_reported(failure: _Failure) -> bool:
    return not failure.problem.passing or failure.times >= _REPORTED_FROM


def _sampled_inside(problem: Problem) -> Problem:
    cause = problem.message.removeprefix("no stack samples: ")
    return Problem(
        f"stacks are sampled in-process, by the training itself: Python frames only, without DataLoader workers "
        f"and the holder of the GIL; samples are taken where the GIL is released; {cause}",
        problem.hint,
        expected=True,
    )


def _explained(problem: Problem, inside: Problem | None) -> Problem:
    """The problem, with why the agent does not sample in py-spy's place."""
    return problem if inside is None else problem._replace(message=f"{problem.message}; {inside.message}")
