"""The tools: what each takes and answers. Their docstrings are what an assistant reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuimon.diagnosis.explain.page import cause_named
from tuimon.errors import UsageError
from tuimon.records import PHASES
from tuimon.views.mcp import answers
from tuimon.views.mcp.limits import bounded
from tuimon.views.mcp.opened import Trainings

_SECONDS = (1.0, 60.0)
_MOST_LINES = 30


class Tools:
    """All tools; ``listed``: the caller's trainings as lines; ``rule_named``: the rule that a user means."""

    def __init__(
        self, trainings: Trainings, listed: Callable[[], Sequence[str]], rule_named: Callable[[str], str]
    ) -> None:
        self._trainings = trainings
        self._listed = listed
        self._rule_named = rule_named

    def all(self) -> tuple[Callable[..., str], ...]:
        """The tools in the order in which they are offered."""
        return (self.trainings, self.verdict, self.evidence, self.hot_lines, self.stacks, self.diff, self.explain)

    def trainings(self) -> str:
        """List the user's PyTorch trainings on this machine: pid, rank, GPUs, CPU, whether markers are on, command."""
        return bounded(self._listed(), "tuimon ps")

    def verdict(self, training: str | int = "", seconds: float = 8.0) -> str:
        """Find what a training waits for, which line causes it, and what each fix gains: begin here.

        Three sentences, the share of each phase, then all findings with their places and fixes, best first.
        """
        return self._trainings.query(training, _clamped(seconds), lambda seen: answers.verdict(seen.report))

    def evidence(self, rule: str, training: str | int = "", seconds: float = 8.0) -> str:
        """Show the evidence of one finding: figures with units, places with the line of code; or why there is none.

        rule: a name from verdict, such as input_bound.
        """
        name = self._rule_named(rule)
        return self._trainings.query(
            training, _clamped(seconds), lambda seen: answers.evidence(seen.session, seen.findings, name)
        )

    def hot_lines(self, training: str | int = "", phase: str = "", most: int = 10, seconds: float = 8.0) -> str:
        """List the lines of the user's code at which the training thread spends its time, by share of stack samples.

        phase: data, forward, backward, optimizer, other or eval; empty for all. most: how many lines, 1 to 30.
        """
        if phase and phase not in PHASES:
            raise UsageError(f"there is no phase {phase!r}", f"One of: {', '.join(PHASES)}")
        count = min(max(most, 1), _MOST_LINES)
        return self._trainings.query(
            training, _clamped(seconds), lambda seen: answers.hot_lines(seen.session, phase or None, count)
        )

    def stacks(self, training: str | int = "", seconds: float = 4.0) -> str:
        """Show the state, CPU and latest Python stack of each thread, innermost frame first. For hangs."""
        return self._trainings.query(training, _clamped(seconds), lambda seen: answers.stacks(seen.session))

    def diff(self, before: str, after: str) -> str:
        """Show if a change helped: step time, phases, GPU, memory, lines, findings before and after; 95 % intervals.

        before, after: paths of logs that tuimon has written, or of folders in which each run is one measurement.
        Rows marked ~ changed no more than by chance.
        """
        return answers.diff(before, after)

    def explain(self, rule: str) -> str:
        """Explain a verdict: its meaning, how sure it is, when it is wrong, and the fix with code before and after.

        rule: a name from verdict, such as input_bound, or a cause, such as no_workers: then with the code for that.
        """
        name = self._rule_named(rule)
        return answers.explain(name, cause_named(name, rule))


def _clamped(seconds: float) -> float:
    return min(max(seconds, _SECONDS[0]), _SECONDS[1])
