"""Ranks of which another one is late in each step: the part of ``straggler_rank`` about work that is uneven."""

from __future__ import annotations

from statistics import median

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.late_ranks import Turns
from tuimon.diagnosis.evidence.lines import HotFunction, hottest_place
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rules.owner_options import ACCUMULATE
from tuimon.diagnosis.speedup import speedup_without
from tuimon.diagnosis.threshold import REPORTED
from tuimon.diagnosis.words import in_library, percent
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN
from tuimon.text import ms_text

#: The cause of these findings.
IN_TURN = "in_turn"
#: How many ranks the headline names.
_NAMED = 4
#: Phases of which samples may show more than markers do.
_DIVIDED = ("data", "forward", "other")


def even_work(evidence: Evidence) -> str:
    """The fix for ranks that have more to do than others in some steps."""
    return (
        "give all ranks equal work in each step: bucket or pack batches by length, with equal numbers of items, or"
        f" {ACCUMULATE[evidence.launching.owner]}"
    )


def ranks_in_turn(evidence: Evidence) -> Finding | None:
    """No rank is late every time, but in each step one is, and all others wait for it.

    If their threads wait for cores, the last one is last by chance, and there is a rule for that wait.
    """
    turns = evidence.turns
    if turns is None or turns.share < REPORTED + _waits_for_cores(evidence):
        return None
    first = turns.last[0][0]
    phase, hot = _where(evidence, turns.phase)
    return Finding(
        rule="straggler_rank",
        severity="warning",
        cause=IN_TURN,
        headline=_headline(turns, phase) + in_library(hot),
        fixes=(Fix.by(even_work(evidence), speedup_without(evidence, turns.share_if_even)),),
        share_of_step=turns.share,
        where=(hot.place,) if hot else (),
        evidence={
            "rank": first.rank,
            "pid": own_id(first.pid),
            "last_share": turns.last[0][1],
            "last": _shares(turns, len(turns.last)),
            "waited_ms": turns.share * turns.step_ms,
            "phase": phase,
            "longer_ms": turns.longer_ms,
            "steps_compared": turns.steps,
        },
    )


def _waits_for_cores(evidence: Evidence) -> float:
    """Share of the time that the training threads of the ranks wait for a core; 0 where that is unknown."""
    return median([row.delay_ratio for row in evidence.rank_rows if row.delay_ratio is not None] or [0.0])


def _where(evidence: Evidence, phase: str) -> tuple[str, HotFunction | None]:
    """The phase, and where all ranks are in it most: they run the same code, and each is late now and then."""
    counts: dict[str, int] = {}
    phases = _DIVIDED if phase == BETWEEN else (phase,)
    stacks = [
        (name, stack)
        for rank in evidence.compared
        for name in phases
        for stack in rank.stacks.main.in_phase(name).stacks
        if stack.activity != "ranks"
    ]
    for name, stack in stacks:
        counts[name] = counts.get(name, 0) + stack.count
    if not counts:
        return ("the step" if phase == BETWEEN else phase), None
    most = max(counts, key=counts.__getitem__)
    return most, hottest_place((stack.place, stack.count) for name, stack in stacks if name == most)


def _headline(turns: Turns, phase: str) -> str:
    more = len(turns.last) - _NAMED
    others = f" and {more} others" if more > 1 else " and 1 other" if more == 1 else ""
    return (
        f"ranks take turns being late ({_shares(turns, _NAMED)} of the steps{others}): {percent(turns.share)} of each"
        f" step waits for the last one, {ms_text(turns.longer_ms)} longer in {phase}"
    )


def _shares(turns: Turns, most: int) -> str:
    """``0 in 40 %, 3 in 35 %``: ranks, and in how many of the steps each was last."""
    return ", ".join(f"{row.rank} in {percent(share)}" for row, share in turns.last[:most])
