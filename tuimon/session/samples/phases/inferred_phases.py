"""Phases of a process without markers, inferred from the stack samples of its main thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tuimon.session.rows import PhaseRow, PhaseTable

_PHASES = ("data", "forward", "backward", "optimizer", "other")
_SURE: Mapping[str, int] = {}


def inferred_phases(
    pid: int, counts: Counter[str], window_s: float, unsure: Mapping[str, int] = _SURE
) -> PhaseTable | None:
    """Shares of the samples by phase, with their error; None while no sample shows training.

    ``window_s``: the time that they cover; ``unsure``: how many of those in the forward pass may be data, and of the
    others either of them.
    """
    total = counts.total()
    if not total or not (counts["backward"] or counts["optimizer"]):
        return None
    inside = total - counts["eval"]  # evaluation is no part of a step
    other = unsure.get("other", 0)
    may_be = {"data": unsure.get("forward", 0) + other, "forward": unsure.get("forward", 0) + other, "other": other}
    rows = [_row(name, counts[name], inside, may_be.get(name, 0)) for name in _PHASES]
    if counts["eval"]:
        rows.append(_row("eval", counts["eval"], total))
    return PhaseTable(pid, window_s, 0, True, tuple(rows))


def _row(name: str, count: int, total: int, unsure: int = 0) -> PhaseRow:
    """A share with half the width of its 95 % interval (normal approximation), at least one sample's share."""
    share = count / total
    error = max(1.96 * (share * (1 - share) / total) ** 0.5, 1.0 / total, unsure / total)
    return PhaseRow(name, share, None, estimated=True, error=error)
