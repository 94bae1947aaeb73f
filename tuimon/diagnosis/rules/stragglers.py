"""The rule about a late rank for which all others wait, be it the same one or another in each step."""

from __future__ import annotations

from statistics import median

from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import update_path
from tuimon.diagnosis.evidence.ranks import ALIKE_SMS, NCCL_SMS, LateRank, late_on_gpu, late_rank
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import RANKS, Rule
from tuimon.diagnosis.rules.owner_options import even_work
from tuimon.diagnosis.step_model.measured import without_cost
from tuimon.diagnosis.threshold import LARGE, REPORTED, SMALL
from tuimon.diagnosis.words import in_library, percent, work_at
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.text import ms_text

#: Most ranks that the headline names.
_NAMED = 4
#: Phases that samples may tell apart where markers do not.
_DIVIDED = ("data", "forward", "other")
_LONGER, _LATE_IN = "{by}longer in {phase}", "rank {rank} is {by}late in {place}: "
#: Reasons why a rank is late: a clause of the headline, and the fix.
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
    "gpu": (
        "whose GPU computes meanwhile: {active} of its multiprocessors are busy, {others_active} of theirs",
        "compare rank {rank}'s batches, and its GPU's clocks and temperature, with the others'",
    ),
    "data": (_LONGER, f"{_LATE_IN}make its batches as cheap as the others', and its reads as fast"),
    "other": (_LONGER, f"{_LATE_IN}do this side work less often, or beside the training"),
    "model": (_LONGER, f"{_LATE_IN}compare its batches and its machine with the others'"),
}


def straggler_rank(evidence: Evidence) -> Finding | None:
    """One rank is late and all others wait for it, in backward or wherever ranks exchange something.

    Or a different rank is late in each step (``in_turn``). The late rank is the one whose own work, without waits in
    collectives, takes longest.
    """
    rows, gpus, in_turn = evidence.ranks.rows, evidence.ranks.gpus, _in_turn(evidence)
    found = [each for each in (late_rank(rows), late_on_gpu(rows, gpus)) if each is not None]
    late = max(found, key=lambda each: each.share, default=None)
    if late is None or not is_sure(evidence, late.share, error=late.error):
        return in_turn
    if in_turn is not None and late.share < (in_turn.share_of_step or 0.0):
        return in_turn
    if len(late.others) + 1 < evidence.world_size and (late.row.wait_ratio or 0.0) >= SMALL:
        return in_turn  # it waits itself for a rank that is not measured
    row, own = late.row, evidence.ranks.of(late.row.pid) if late.why != "gpu" else None
    hot = own.samples.where(_is_at_work, phase=late.phase).hottest() if own is not None else None
    longer_ms = row.ms(late.longer)
    active = [gpus[each.pid].sm_ratio or 0.0 if each.pid in gpus else 0.0 for each in (row, *late.others)]
    facts = {
        "rank": row.rank,
        "by": f"{ms_text(longer_ms)} " if longer_ms is not None else "",
        "phase": late.phase,
        "place": work_at(hot, update_path(own.samples)) if own is not None and hot is not None else late.phase,
        "stopped": percent(row.stopped_ratio),
        "delay": percent(row.delay_ratio or 0.0),
        "active": percent(active[0]),
        "others_active": percent(median(active[1:])),
    }
    reason = late.why or (late.phase if late.phase in _REASONS else "model")
    clause, action = (template.format_map(facts) for template in _REASONS[reason])
    fix = without_cost(evidence, action, Interval.around(late.share, late.error))
    return Finding(
        headline=f"{_lost(late)}, {clause}{in_library(hot)}",
        fixes=(fix.without_upper_end if late.why == "gpu" else fix,),
        share_of_step=late.share,
        where=(hot.place,) if hot else (),
        evidence={
            "rank": row.rank,
            "pid": own_id(row.pid),
            **({"host": row.host} if late.is_elsewhere else {}),
            "waited_ms": row.ms(late.share),
            "phase": late.phase,
            "longer_ms": longer_ms,
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
    """In each step another rank is late, and all others wait for it.

    If threads wait for cores, chance decides who is last, and another rule reports the waits.
    """
    if median([row.wait_ratio for row in evidence.ranks.rows if row.wait_ratio is not None] or [0.0]) < REPORTED:
        return None  # spares comparing single steps, which takes longer
    turns = evidence.ranks.turns
    waits = median([row.delay_ratio or 0.0 for row in evidence.ranks.rows] or [0.0])  # for cores
    if turns is None or turns.share < REPORTED + waits:
        return None
    # the phase with most samples of all ranks: they run the same code, and each of them is late now and then
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
    """True if a rank is not waiting for another one."""
    return node.activity != "ranks"


STRAGGLER_RANK = Rule(
    title="A rank that others wait for",
    judge=straggler_rank,
    needs=(RANKS,),
    thresholds=(REPORTED, LARGE, SMALL, NCCL_SMS, ALIKE_SMS, *CONFIDENCE),
    causes=("in_turn",),
    contradicts_order=True,
    takes=lambda cell, finding: "rank" in cell.via or cell.phase == finding.evidence["phase"],
    claims_first=True,
)
