"""The rule about a rank that all others wait for, or another one in each step."""

from __future__ import annotations

import math
from statistics import median

from tuimon.diagnosis.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.evidence.batches import READS
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.late_ranks import ALIKE, LateRank, Turns, Why, late_rank, longer_passes, waits_for_cores
from tuimon.diagnosis.evidence.side_work import update_path
from tuimon.diagnosis.evidence.steps import LongestSteps
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
from tuimon.session.rows import HotLine
from tuimon.session.stacks.activity import innermost_wait
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node
from tuimon.text import ms_text

#: The cause of these findings.
IN_TURN = "in_turn"
#: How many ranks the headline names.
_NAMED = 4
#: Phases of which samples may show more than markers do.
_DIVIDED = ("data", "forward", "other")
_PHASES = ("data", "forward", "backward", "optimizer", "other")
#: What a rank that is late in a phase should do.
_MEND = {
    "data": "make its batches as cheap as the others'",
    "forward": "compare its batches and its machine with the others'",
    "backward": "compare its batches and its machine with the others'",
    "optimizer": "compare its machine with the others'",
    "other": "do this side work less often, or beside the training",
}
_WHY: dict[Why, str] = {
    "stopped": "which is stopped {percent} of the time",
    "no core": "whose training thread waits {percent} of the time for a core",
}


def ranks_in_turn(evidence: Evidence) -> Finding | None:
    """No rank is late every time, but in each step one is, and all others wait for it.

    If their threads wait for cores, the last one is last by chance, and there is a rule for that wait.
    """
    turns = evidence.turns
    waits = median([row.delay_ratio for row in evidence.rank_rows if row.delay_ratio is not None] or [0.0])  # for cores
    if turns is None or turns.share < REPORTED + waits:
        return None
    first = turns.last[0][0]
    phase, hot = _where(evidence, turns.phase)
    return Finding(
        cause=IN_TURN,
        headline=_turns_headline(turns, phase) + in_library(hot),
        fixes=(without_cost(evidence, even_work(evidence), Interval.around(turns.share_if_even)),),
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


def _where(evidence: Evidence, phase: str) -> tuple[str, HotLine | None]:
    """The phase, and where all ranks are in it most: they run the same code, and each is late now and then."""
    phases = _DIVIDED if phase == BETWEEN else (phase,)
    samples = Samples.joined(rank.samples.where(_is_at_work, phase=phases) for rank in evidence.compared)
    if not samples.total:
        return ("the step" if phase == BETWEEN else phase), None
    most = max(phases, key=lambda name: samples.phases[name])
    return most, samples.where(phase=most).hottest()


def _is_at_work(node: Node) -> bool:
    """True if a rank waits for no other one."""
    return node.activity != "ranks"


def _turns_headline(turns: Turns, phase: str) -> str:
    more = len(turns.last) - _NAMED
    others = f" and {more} others" if more > 1 else " and 1 other" if more == 1 else ""
    return (
        f"ranks take turns being late ({_shares(turns, _NAMED)} of the steps{others}): {percent(turns.share)} of each"
        f" step waits for the last one, {ms_text(turns.longer_ms)} longer in {phase}"
    )


def _shares(turns: Turns, most: int) -> str:
    """``0 in 40 %, 3 in 35 %``: ranks, and in how many of the steps each was last."""
    return ", ".join(f"{row.rank} in {percent(share)}" for row, share in turns.last[:most])


def straggler_rank(evidence: Evidence) -> Finding | None:
    """One rank is late and all others wait for it: inside backward, or wherever they exchange something.

    Or another one in each step (``in_turn``). The late one is whose own work, without waiting in collectives, takes
    longest.
    """
    late = late_rank(evidence.rank_rows) or _late_by_samples(evidence)
    in_turn = ranks_in_turn(evidence) if _wait(evidence) else None
    if late is None or late.share < max(REPORTED, (in_turn.share_of_step or 0.0) if in_turn is not None else 0.0):
        return in_turn
    own = evidence.of_rank(late.row.pid)
    hot = _hottest(own, late) if own is not None else None
    few = own.longest_steps(late.waited_ms) if own is not None and late.waited_ms is not None else None
    return Finding(
        headline=_headline(late, few) + in_library(hot),
        fixes=(without_cost(evidence, _action(late, own, hot, few), Interval.around(late.share, late.error)),),
        share_of_step=late.share,
        where=(hot.place,) if hot else (),
        evidence={
            "rank": late.row.rank,
            "pid": own_id(late.row.pid),
            **({"host": late.row.host} if _on_host(late) else {}),
            "waited_ms": late.waited_ms,
            "phase": late.phase,
            "longer_ms": late.longer_ms,
            **({"late_in_steps": few.steps, "of_steps": few.of} if few is not None else {}),
            **({"also_late": ", ".join(map(str, late.also))} if late.also else {}),
            **({"gc_ms": late.row.gc_ms} if late.why == "collections" else {}),
            **({"stopped_share": late.row.stopped_ratio} if late.why == "stopped" else {}),
        },
    )


def _late_by_samples(evidence: Evidence) -> LateRank | None:
    """The rank that waits least for the others, by samples and counters of ranks without markers.

    They make their steps together, so that shares of their time compare; times are not known. None where samples leave
    it open, where it has to wait for a core instead (then chance decides), and if another rank, of which there are too
    few samples, may be later: not later than one that waits for nobody.
    """
    if evidence.phases is None or not evidence.phases.inferred:
        return None
    ranks = {rank.pid: rank for rank in evidence.compared}
    threads = {pid: rank.training_thread_of_run for pid, rank in ranks.items()}
    measured = {pid: communication(rank, {}, threads[pid]) for pid, rank in ranks.items()}
    waits = {pid: found for pid, found in measured.items() if found is not None}
    rows = [row for row in evidence.rank_rows if row.pid in waits and row.state != "lost"]
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
    phase = longer_in = max(excess, key=excess.__getitem__)
    if phase == "backward" and longer_passes(own[row.pid], excess, share) is not None:
        phase, longer_in = "forward", "forward and backward"
    return LateRank(
        row=row,
        others=others,
        also=tuple(other.rank for other in others if usual - waits[other.pid].share >= ALIKE * share),
        waited_ms=None,
        share=share,
        phase=phase,
        longer_in=longer_in,
        longer_ms=None,
        why=None,
        error=error,
    )


def _own_shares(rank: Evidence, waits: Communication) -> dict[str, float]:
    """The share of each phase in the time of a rank, less what it waits for others there."""
    samples = rank.samples
    calling = {n: samples.where(phase=n).share(doing="ranks") or 0.0 for n in _PHASES}
    own = {name: rank.share_of(name) * (1.0 - calling[name]) for name in _PHASES}
    return own | {"backward": rank.share_of("backward") - waits.in_backward}


def _wait(evidence: Evidence) -> bool:
    """True if ranks wait for each other at all: comparing their steps one by one takes longer."""
    known = [row.wait_ratio for row in evidence.rank_rows if row.wait_ratio is not None]
    return bool(known) and median(known) >= REPORTED


def _hottest(own: Evidence, late: LateRank) -> HotLine | None:
    """The late rank's own line in its longer phase, not one at which it waits for others itself.

    Backward, in which it may wait, counts only if the user's code that it runs, such as hooks, is what takes longer.
    """
    samples = own.samples.where(phase=late.phase)
    inside = samples.where(lambda node: innermost_wait(node.frames) != "ranks")
    share = inside.total / max(1, samples.total)
    phase_ms = dict(late.row.phases).get(late.phase, 0.0) * (late.row.step_ms or 0.0)
    if inside.total < samples.total and late.longer_ms is not None and share * phase_ms >= MOST * late.longer_ms:
        return inside.hottest()
    if not samples.part(doing="ranks"):
        return own.hottest_in(late.phase)
    return samples.where(_is_at_work).hottest()


def _headline(late: LateRank, few: LongestSteps | None) -> str:
    """``few``: the steps that most of the wait lies in, where it is not in every one."""
    others, row = len(late.others) - len(late.also), late.row
    first = next(other.rank for other in late.others if other.rank not in late.also or not others)
    who = f"rank {first} waits" if others <= 1 else f"the other {others} ranks wait"
    when = f"of the time for {_late_ones(late)}" if few is not None else f"of each step for {_late_ones(late)}"
    lost = f"{who} {percent(late.share)} {when}" + (f", most of it in {few.steps} of {few.of} steps" if few else "")
    if late.why in _WHY:
        ratio = row.stopped_ratio if late.why == "stopped" else row.delay_ratio or 0.0
        return f"{lost}, {_WHY[late.why].format(percent=percent(ratio))}"
    reason = ", in the garbage collector" if late.why == "collections" else ""
    by = f"{ms_text(late.longer_ms)} " if few is None and late.longer_ms is not None else ""
    return f"{lost}, {by}longer in {late.longer_in}{reason}"


def _late_ones(late: LateRank) -> str:
    """``rank 2``, ``ranks 2 and 5``, ``rank 2 and 3 more``; on several nodes ``rank 20 on node2``."""
    if len(late.also) == 1:
        return f"ranks {late.row.rank} and {late.also[0]}"
    more = f" and {len(late.also)} more" if late.also else ""
    return f"rank {late.row.rank}{_on_host(late)}{more}"


def _on_host(late: LateRank) -> str:
    """The host that it runs on, if others run elsewhere."""
    host = late.row.host
    return f" on {host}" if host is not None and any(other.host != host for other in late.others) else ""


def _action(late: LateRank, own: Evidence | None, hot: HotLine | None, few: LongestSteps | None) -> str:
    """The fix names what the rank is late in; only longer passes in step show that it has more work."""
    rank = late.row.rank
    match late.why:
        case "stopped":
            return f"find who stops rank {rank}'s process: a tool that limits its CPU, or a debugger"
        case "no core":
            return f"give rank {rank} cores of its own: check what else runs on its machine, and its CPU limit"
        case "collections":
            return f"collect garbage in rank {rank} seldom, or in all ranks at the same step: gc.freeze(), gc.disable()"
    if late.longer_in != late.phase:
        return f"give rank {rank} as much work as the others: its forward and its backward are longer alike"
    mend, place = _MEND[late.phase], late.phase
    if own is not None and hot is not None:
        samples = own.samples
        place = work_at(hot, update_path(samples))
        if late.phase == "data" and samples.where(phase="data").part(doing=READS) >= MOST:
            mend = "make its reads as fast as the others'"
    by = f"{ms_text(late.longer_ms)} " if few is None and late.longer_ms is not None else ""
    return f"rank {rank} is {by}late in {place}: {mend}"


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
    causes=(IN_TURN,),
    contradicts_order=True,
)
