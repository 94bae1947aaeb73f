"""What was told of a case against what was planted."""

from __future__ import annotations

from typing import NamedTuple

from tests.hang_truth.cases import Case, odd_lines
from tests.hang_truth.running import AT, Result

#: A hang must be told this soon after the last step (s).
SOON_S = 25.0
HEAD = f"{'fault':<26}{'ranks':>6}  {'told after':>10}  {'odd rank':>8}  {'line':>5}  verdict"


class Verdict(NamedTuple):
    """One row of the table."""

    is_right: bool
    why: str
    told_after_s: float | None = None
    odd_ranks: str | None = None
    line: int | None = None


def judged(case: Case, ranks: int, result: Result) -> Verdict:
    """Whether a hang was told soon, with the odd rank and its line first; and nothing where nothing hangs."""
    if not case.hangs:
        return _judged_healthy(case, result)
    if result.told is None or result.told_after_s is None:
        return Verdict(False, f"nothing was told; exit code {result.exit_code}, step {result.steps}")
    told_ranks = result.told["evidence"].get("odd_ranks")
    lines = [place["line"] for place in result.told["where"] if place["file"].endswith(case.script.name)]
    wrong = []
    if result.told_after_s > SOON_S:
        wrong.append("late")
    expected, is_tie = (
        odd_lines(case.fault, case.script),
        case.fault == "skip" and ranks == 2,
    )  # each waits for the other
    if told_ranks != (None if is_tie or case.is_alone else str(ranks - 1)):
        wrong.append("not the odd rank")
    if expected and not expected & set(lines if is_tie else lines[:1]):
        wrong.append(f"not its line ({', '.join(map(str, sorted(expected)))})")
    line = lines[0] if lines and expected else None
    return Verdict(not wrong, ", ".join(wrong) or "right", result.told_after_s, told_ranks, line)


def _judged_healthy(case: Case, result: Result) -> Verdict:
    if result.told is not None:
        return Verdict(False, f"a hang was told: {result.told['headline']}", result.told_after_s)
    if result.exit_code is None or (result.exit_code == 0) != (case.exit_code == 0):
        return Verdict(False, f"exit code {result.exit_code}")
    if case.exit_code == 0 and result.steps < AT + 50:
        return Verdict(False, f"only {result.steps} steps")
    return Verdict(True, f"right: nothing was told, exit code {result.exit_code}")


def row(case: Case, ranks: int, verdict: Verdict) -> str:
    """A line of the table."""
    after = f"{verdict.told_after_s:.1f} s" if verdict.told_after_s is not None else "–"
    line = str(verdict.line) if verdict.line is not None else "–"
    return f"{case.fault:<26}{ranks:>6}  {after:>10}  {verdict.odd_ranks or '–':>8}  {line:>5}  {verdict.why}"
