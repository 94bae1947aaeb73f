"""The rule about a rank that all others wait for, or another one in each step."""

from __future__ import annotations

import math
from statistics import median

from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import update_path
from tuimon.diagnosis.evidence.ranks import ALIKE, LateRank, late_rank, waits_for_cores
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import RANKS, Rule
from tuimon.diagnosis.rules.comm import Communication, communication
from tuimon.diagnosis.rules.owner_options import even_work
from tuimon.diagnosis.step_model.measured import without_cost
from tuimon.diagnosis.threshold import LARGE, MOST, REPORTED, SMALL
from tuimon.diagnosis.words import in_library, percent, work_at
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.text import ms_text

#: How many ranks the headline names.
_NAMED = 4
#: Phases of which samples may show more than markers do.
_DIVIDED = ("data", "forward", "other")
_PHASES = ("data", "forward", "backward", "optimizer", "other")
_LONGER, _LATE_IN = "{by}longer in {phase}", "rank {rank} is {by}late in {place}: "
#: Why a rank is late: a clause of the headline, and the fix.
_REASONS = {
    "stopped": (
        "which is stopped {stopped} of the time",
        "find who stops rank {rank}'s process: a tool that limits its CPU, or a debugger",
    ),
    "no core": (
        "whose training thread waits {delay} of the time for a core",
        "give rank {rank} cores of its own: check what else runs on its machine, and its CPU limit",
    ),
    "collections": (
        f"{_LONGER}, in the garbage collector",
        "collect garbage in rank {rank} seldom, or in all ranks at the same step: gc.freeze(), gc.disable()",
    ),
    "data": (_LONGER, f"{_LATE_IN}make its batches as cheap as the others', and its reads as fast"),
    "other": (_LONGER, f"{_LATE_IN}do this side work less often, or beside the training"),
    "model": (_LONGER, f"{_LATE_IN}compare its batches and its machine with the others'"),
}


def straggler_rank(evidence: Evidence) -> Finding | None:
    """One rank is late and all others wait for it: inside backward, or wherever they exchange something.

    Or another one in each step (``in_turn``). The late one is whose own work, without waiting in collectives, takes
    longest.
    """
    late = late_rank(evidence.ranks.rows) or _late_by_samples(evidence)
    in_turn = _in_turn(evidence)
    if late is None or late.share < max(REPORTED, (in_turn.share_of_step or 0.0) if in_turn is not None else 0.0):
        return in_turn
    row, own = late.row, evidence.ranks.of(late.row.pid)
    hot = own.samples.where(_is_at_work, phase=late.phase).hottest() if own is not None else None
    facts = {
        "rank": row.rank,
        "by": f"{ms_text(late.longer_ms)} " if late.longer_ms is not None else "",
        "phase": late.phase,
        "place": work_at(hot, update_path(own.samples)) if own is not None and hot is not None else late.phase,
        "stopped": percent(row.stopped_ratio),
        "delay": percent(row.delay_ratio or 0.0),
    }
    reason = late.why or (late.phase if late.phase in _REASONS else "model")
    clause, fix = (template.format_map(facts) for template in _REASONS[reason])
    return Finding(
        headline=f"{_lost(late)}, {clause}{in_library(hot)}",
        fixes=(without_cost(evidence, fix, Interval.around(late.share, late.error)),),
        share_of_step=late.share,
        where=(hot.place,) if hot else (),
        evidence={
            "rank": row.rank,
            "pid": own_id(row.pid),
            **({"host": row.host} if late.is_elsewhere else {}),
            "waited_ms": late.waited_ms,
            "phase": late.phase,
            "longer_ms": late.longer_ms,
            **({"also_late": ", ".join(map(str, late.also))} if late.also else {}),
        },
    )


def _lost(late: LateRank) -> str:
    """``the others wait 40 % of the time for rank 2``."""
    others = [row.rank for row in late.others if row.rank not in late.also]
    who = f"rank {others[0]} waits" if len(others) == 1 else "the others wait"
    ones = ", ".join(map(str, (late.row.rank, *late.also)[:_NAMED]))
    host = f" on {late.row.host}" if late.is_elsewhere else ""
    return f"{who} {percent(late.share)} of the time for rank{'s' * bool(late.also)} {ones}{host}"


def _in_turn(evidence: Evidence) -> Finding | None:
    """No rank is late every time, but in each step one is, and all others wait for it.

    If their threads wait for cores, the last one is last by chance, and there is a rule for that wait.
    """
    if median([row.wait_ratio for row in evidence.ranks.rows if row.wait_ratio is not None] or [0.0]) < REPORTED:
        return None  # to compare steps one by one takes longer
    turns = evidence.ranks.turns
    waits = median([row.delay_ratio or 0.0 for row in evidence.ranks.rows] or [0.0])  # for cores
    if turns is None or turns.share < REPORTED + waits:
        return None
    # where all ranks are in the phase most: they run the same code, and each is late now and then
    phases = _DIVIDED if turns.phase == BETWEEN else (turns.phase,)
    samples = Samples.joined(rank.samples.where(_is_at_work, phase=phases) for rank in evidence.ranks.compared)
    phase = max(phases, key=lambda name: samples.phases[name])
    hot = samples.where(phase=phase).hottest()
    last = ", ".join(f"{row.rank} in {percent(share)}" for row, share in turns.last[:_NAMED])
    first = turns.last[0][0]
    return Finding(
        cause="in_turn",
        headline=(
            f"ranks take turns being late ({last} of the steps): {percent(turns.share)} of each step waits for the"
            f" last one, {ms_text(turns.longer_ms)} longer in {phase}{in_library(hot)}"
        ),
        fixes=(without_cost(evidence, even_work(evidence), Interval.around(turns.share_if_even)),),
        share_of_step=turns.share,
        where=(hot.place,) if hot else (),
        evidence={
            "rank": first.rank,
            "pid": own_id(first.pid),
            "last_share": turns.last[0][1],
            "last": last,
            "waited_ms": turns.share * turns.step_ms,
            "phase": phase,
            "longer_ms": turns.longer_ms,
            "steps_compared": turns.steps,
        },
    )


def _is_at_work(node: Node) -> bool:
    """True if a rank waits for no other one."""
    return node.activity != "ranks"


def _late_by_samples(evidence: Evidence) -> LateRank | None:
    """The rank that waits least for the others, by samples and counters of ranks without markers.

    They make their steps together, so that shares of their time compare; times are not known. None where samples leave
    it open, where it has to wait for a core instead (then chance decides), and if another rank, of which there are too
    few samples, may be later: not later than one that waits for nobody.
    """
    if evidence.steps.phases is None or not evidence.steps.phases.inferred:
        return None
    ranks = {rank.pid: rank for rank in evidence.ranks.compared}
    threads = {pid: rank.threads.training_of_run for pid, rank in ranks.items()}
    measured = {pid: communication(rank, {}, threads[pid]) for pid, rank in ranks.items()}
    waits = {pid: found for pid, found in measured.items() if found is not None}
    rows = [row for row in evidence.ranks.rows if row.pid in waits and row.state != "lost"]
    if len(rows) < 2:
        return None
    row = min(rows, key=lambda row: waits[row.pid].share)
    others, least = tuple(other for other in rows if other is not row), waits[row.pid]
    if len(rows) < evidence.world_size and least.share >= SMALL:
        return None
    usual = median(waits[other.pid].share for other in others)
    share, error = usual - least.share, math.hypot(least.error, median(waits[other.pid].error for other in others))
    for_core = waits_for_cores(threads[row.pid], [threads[other.pid] for other in others])
    if not is_sure(evidence, share, error=error) or for_core >= MOST * share:
        return None
    own = {pid: _own_shares(ranks[pid], found) for pid, found in waits.items()}
    excess = {name: own[row.pid][name] - median(own[other.pid][name] for other in others) for name in _PHASES}
    return LateRank(
        row=row,
        others=others,
        also=tuple(other.rank for other in others if usual - waits[other.pid].share >= ALIKE * share),
        waited_ms=None,
        share=share,
        phase=max(excess, key=excess.__getitem__),
        longer_ms=None,
        why=None,
        error=error,
    )


def _own_shares(rank: Evidence, waits: Communication) -> dict[str, float]:
    """The share of each phase in the time of a rank, less what it waits for others there."""
    samples = rank.samples
    calling = {n: samples.where(phase=n).share(doing="ranks") or 0.0 for n in _PHASES}
    own = {name: rank.steps.share_of(name) * (1.0 - calling[name]) for name in _PHASES}
    return own | {"backward": rank.steps.share_of("backward") - waits.in_backward}


STRAGGLER_RANK = Rule(
    title="A rank that others wait for",
    judge=straggler_rank,
    explanation=(
        "One rank is late, and all others wait for it where gradients or other tensors are exchanged. It rests on the"
        " ranks' phases less what each waits in collectives: that is estimated from stacks, and inside backward, on a"
        " CPU, from how long the training thread sleeps there. On GPUs, by their clocks where all have times there, the"
        " others' longer backward must show that they wait. If another rank is late in each step, single steps show it."
        " Without markers shares of the ranks' time are compared. It abstains with fewer than two measured ranks."
    ),
    needs=(RANKS,),
    thresholds=(REPORTED, LARGE, SMALL, *CONFIDENCE),
    causes=("in_turn",),
    contradicts_order=True,
    takes=lambda cell, finding: "rank" in cell.via or cell.phase == finding.evidence["phase"],
    claims_first=True,
)
