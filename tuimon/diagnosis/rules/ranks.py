"""Rules about ranks: their communication, and a late rank for which all others wait."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from tuimon.diagnosis.cells import cells_of
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import in_inner_loop, update_path
from tuimon.diagnosis.evidence.ranks import (
    Exchange,
    late_on_gpu,
    late_rank,
    late_turns,
)
from tuimon.diagnosis.finding import Figure, Finding, Fix, verdict
from tuimon.diagnosis.rule import UNSURE, is_sure
from tuimon.diagnosis.rules.advice import advice_on_debugging, even_work, options
from tuimon.diagnosis.step_model import without, without_cost
from tuimon.diagnosis.words import CHANGES_TRAINING, at_hot, in_library, percent, work_at
from tuimon.interval import NONE, Interval
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN, DIVIDED
from tuimon.session.ranks import RankRow
from tuimon.session.series import sampling_error
from tuimon.session.stacks.activity import WAITS, outer_calls
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.text import ms_text
from tuimon.threshold import MIN_SAMPLES, REPORTED, SMALL, TINY
from tuimon.torch_code import model_division

#: How to make an exchange cheaper when there are as many exchanges.
_CHEAPER = "use a bf16 compression hook, or larger buckets (bucket_cap_mb)"
_FEWER_RANKS = (
    "divide layers over fewer ranks, and the batch over the others (a mesh of two dimensions): each layer that ranks"
    " share exchanges in forward and in backward"
)


#: For a loop that calls ``all_reduce`` itself: in any case, and if it makes many such calls.
_WHILE_COMPUTING = (
    "let DistributedDataParallel exchange the gradients instead of {}: it joins them into buckets and exchanges these"
    " during backward"
)
_AT_ONCE = (
    "exchange all gradients at {} by one call, as one flat tensor; or let DistributedDataParallel do it, which joins"
    " them into buckets and exchanges these during backward"
)
_BUFFERS = (
    "set broadcast_buffers=False in DistributedDataParallel if the model's buffers are alike on all ranks: else rank 0"
    " sends them before each forward pass"
)
#: A step makes many exchanges if they have this many times the bytes of the largest: beside one flat exchange of all
#: gradients, it may average a loss.
_SEVERAL = 2.0


class Communication(Struct, frozen=True, gc=False):
    """The time that one rank spends on communication, or waits in it for others; shares are of its time."""

    called: float  # share of samples in torch.distributed
    in_backward: float  # backward that waits: on the CPU neither running nor runnable, on a GPU by ``exchange``
    hot: HotLine | None
    error: float  # of ``share``, half the width of its 95 % interval
    exchange: Exchange | None = None  # where the share rests on GPU times

    @property
    def share(self) -> float:
        """The share of both kinds of waits together."""
        return min(1.0, self.called + self.in_backward)


def comm_bound(evidence: Evidence) -> Finding | None:
    """Ranks spend their steps on exchanging gradients or other tensors.

    The rank that waits least counts: any longer wait of the others is for that rank (``straggler_rank``).
    """
    if evidence.world_size < 2:
        return None
    compared, rows = evidence.compared, {row.pid: row for row in evidence.ranks}
    exchanges = evidence.exchanges
    measured = [
        found
        for rank in compared
        if rank.pid in rows and (found := _communication(rank, rows[rank.pid], exchanges.get(rank.pid))) is not None
    ]
    if not measured:
        return None
    least = min(measured, key=lambda rank: rank.share)
    divided = cells_of(evidence)
    for_cores = divided.where(via="rank").where(via="core").share
    if least.exchange is None and for_cores > divided.where(doing={"exchange"}).share:
        return None  # the others come late because they wait for a core
    if not is_sure(evidence, least.share, error=least.error):
        return None
    exchange, ranks, share = least.exchange, evidence.world_size, percent(least.share)
    whole = len(measured) == len(compared) and len(rows) == ranks  # else a wait may be for a rank that is not measured
    cheaper = f"{options(evidence).accumulate}, or use a larger batch per rank: {CHANGES_TRAINING}; or {_CHEAPER}"
    cheaper += ", or NCCL on GPUs" if evidence.gpu.is_used is False else ""
    figures: dict[str, Figure] = {}
    if exchange is None:
        inside = "" if least.hot else ", inside backward"
        headline = f"{share} of each step goes to communication between {ranks} ranks{inside}"
        part = Interval.around(least.share, UNSURE) if whole else NONE
        by_hand = least.hot is not None and "all_reduce" in outer_calls(least.hot.place.source)
        advice = _AT_ONCE if _exchanges_many(evidence) else _WHILE_COMPUTING
        action = advice.format(at_hot(least.hot)) if least.hot is not None and by_hand else cheaper
        sends_buffers = not by_hand and [each.name for each in evidence.collectives[:1]] == ["broadcast"]
        action = _BUFFERS if sends_buffers else action
        most = Interval.around(part.middle)
        fix = without(evidence, "communication", action, part, claimed=most, changes_training=action == cheaper)
        fix = Fix(_FEWER_RANKS) if _division(compared) == "layers" else fix
    else:  # the share comes from the GPU's clock
        phase = "" if exchange.rests_on == "multiprocessors" else " in backward"
        whom = f"for gradients of the other {ranks - 1} ranks"
        if exchange.is_uneven:
            whom = f"mostly for late ranks, a different one of the {ranks} from step to step"
        headline = f"the GPU waits at least {share} of each step{phase}{',' * exchange.is_uneven} {whom}"
        fix = without_cost(evidence, cheaper, exchange.share, changes_training=True)
        if exchange.rests_on != "no_sync" or not whole:
            gain = without_cost(evidence, "", Interval.around(least.share)).gain
            fix = Fix(even_work(evidence)) if exchange.is_uneven else fix
            fix = fix.by_up_to(gain.high if gain is not None else None)
        waits = {"waits_for_later_ranks_at_least_share": exchange.waiting, "rests_on": exchange.rests_on}
        means = [row.means for row in evidence.gpu.rows if row.means is not None]
        links = [rate for each in means for rate in (each.nvlink_rx_bytes_per_s, each.nvlink_tx_bytes_per_s)]
        nvlink = {"nvlink_bytes_per_s": max(known)} if (known := [rate for rate in links if rate is not None]) else {}
        figures = {**exchange.figures, **waits, **nvlink}  # a rank that waits for a late one moves little
    collectives = _collectives(evidence)
    debugging = advice_on_debugging("comm_bound", evidence)  # until that is off, the gain of a change is unknown
    return verdict(
        ": ".join((headline, *collectives.values())),
        debugging or fix,
        share=least.share,
        at=least.hot,
        evidence={
            "calls_share": least.called,
            "waiting_in_backward_share": least.in_backward,
            "ranks_measured": len(measured),
            "world_size": ranks,
            **collectives,
            **figures,
        },
    )


def _exchanges_many(evidence: Evidence) -> bool:
    """True if a step makes many ``all_reduce``: as counted, or else by a loop around it within the training's."""
    for each in evidence.collectives:
        if each.name == "all_reduce" and each.bytes and each.largest_bytes:
            return each.bytes >= _SEVERAL * each.largest_bytes
    return evidence.samples.where(in_inner_loop(evidence.samples), doing="ranks").total >= MIN_SAMPLES


def _collectives(evidence: Evidence) -> dict[str, str]:
    """The largest collectives of a step, as evidence; empty if they are unknown."""
    known = evidence.collectives
    most = max((each.bytes or 0.0 for each in known), default=0.0)
    named = [each.text for each in known if (each.bytes or 0.0) >= TINY * most][:2]
    return {"collectives": "; ".join(named)} if named else {}


def _communication(rank: Evidence, row: RankRow, exchange: Exchange | None) -> Communication | None:
    """The communication of a rank; None with too few samples, or if it is unknown how much its thread runs."""
    main = rank.samples
    if main.total < 3 * MIN_SAMPLES:
        return None
    calls = main.where(doing="ranks", phase=[phase for phase in main.phases if phase != "backward"])
    called, in_backward = calls.total / main.total, exchange.share.low if exchange is not None else 0.0
    if rank.gpu.is_used is False:
        if row.wait_ratio is None:
            return None
        exchange, in_backward = None, row.waits.get("backward", 0.0)
        called = row.wait_ratio - in_backward
    error = sampling_error(called + main.part(doing=WAITS - {"ranks"}), main.total)
    hot = calls.hottest() if called >= in_backward else None
    return Communication(called, in_backward, hot, error, exchange if in_backward > called else None)


#: Most ranks that the headline names.
_NAMED = 4
#: The share of ``GpuSteps`` that shows a late GPU.
_SHOWN_BY = {"gpu": "sm_ratio", "slow gpu": "clock_ratio", "power": "power_ratio"}
_LONGER, _LATE_IN = "which is {late}longer in {phase}", "rank {rank} is {by}late in {place}: "
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
        "whose {gpus} meanwhile: {active} of multiprocessors are busy (on GPUs that wait: {others_active})",
        "compare rank {rank}'s batches, and its GPU's clocks and temperature, with the others'",
    ),
    "slow gpu": (
        "whose {gpus} meanwhile, at {active} of the highest clock (GPUs that wait: {others_active})",
        "find what holds the clocks of rank {rank}'s GPU down: nvidia-smi -q -d CLOCK,TEMPERATURE,PERFORMANCE",
    ),
    "power": (
        "whose {gpus} meanwhile, by a weak sign: at {active} of the power limit (the others: {others_active}, at full"
        " clock)",
        "compare rank {rank}'s batches, and its GPU's clocks and temperature, with the others'",
    ),
    "data": (_LONGER, f"{_LATE_IN}make its batches as cheap as the others', and its reads as fast"),
    "other": (_LONGER, f"{_LATE_IN}do this side work less often, or in the background"),
    "stage": (_LONGER, "move layers from rank {rank}'s stage of the pipeline to those that wait"),
    "model": (_LONGER, f"{_LATE_IN}compare its batches and its machine with the others'"),
}


def straggler_rank(evidence: Evidence) -> Finding | None:
    """One rank is late and all others wait for it, in backward or wherever ranks exchange something.

    Or a different rank is late in each step (``in_turn``). The late rank is the one whose own work, without waits in
    collectives, takes longest.
    """
    rows, gpus, in_turn = evidence.ranks, evidence.compared_gpus, _in_turn(evidence)
    found = [each for each in (late_rank(rows), late_on_gpu(rows, gpus)) if each is not None]
    late = max(found, key=lambda each: each.share, default=None)
    if late is None or not is_sure(evidence, late.share, error=late.error):
        return in_turn
    if in_turn is not None and late.share < (in_turn.share_of_step or 0.0):
        return in_turn
    if len(late.others) + 1 < evidence.world_size and (late.row.wait_ratio or 0.0) >= SMALL:
        return in_turn  # it waits itself for a rank that is not measured
    row, shown_by = late.row, _SHOWN_BY.get(late.why or "")
    own = evidence.of_rank(row.pid) if shown_by is None else None
    hot = own.samples.where(_is_at_work, phase=late.phase).hottest() if own is not None else None
    late_ms = row.late_ms  # as panes and reports show it
    others = [each for each in late.others if each.rank not in late.also]
    active = (
        [getattr(gpus[each.pid], shown_by) or 0.0 for each in (row, *others)] if shown_by is not None else [0.0] * 2
    )
    facts = {
        "rank": row.rank,
        "by": f"{ms_text(late_ms)} " if late_ms is not None else "",
        "late": f"{ms_text(late_ms)} late, " if late_ms is not None else "",
        "phase": late.phase,
        "place": work_at(hot, update_path(own.samples)) if own is not None and hot is not None else late.phase,
        "stopped": percent(row.main.stopped_ratio),
        "delay": percent(row.main.delay_ratio or 0.0),
        "gpus": "GPUs compute" if late.also else "GPU computes",
        "active": percent(active[0]),
        "others_active": percent(median(active[1:])),
    }
    is_stage = late.why is None and _division(evidence.compared) == "stages"
    reason = "stage" if is_stage else late.why or (late.phase if late.phase in _REASONS else "model")
    clause, action = (template.format_map(facts) for template in _REASONS[reason])
    # layers, or a part of the batch, that move to the others are work there
    moved = late.share * (1.0 - (1 + len(late.also)) / evidence.world_size)
    fix = without_cost(evidence, action, Interval.around(moved if is_stage else late.share, late.error))
    if shown_by is not None:
        fix = without_cost(evidence, action, Interval(moved, late.share)).without_upper_end
    is_weak = late.why == "power"
    who = f"rank {others[0].rank}" if len(others) == 1 else "the others"
    wait = "may wait" if is_weak else "waits" if len(others) == 1 else "wait"
    ones = ", ".join(map(str, (row.rank, *late.also)[:_NAMED]))
    whom = f"{'ranks' if late.also else 'rank'} {ones}{f' on {row.host}' if late.is_elsewhere else ''}"
    return verdict(
        f"{who} {wait} {percent(late.share)} of the time for {whom}, {clause}{in_library(hot)}",
        Fix(action) if is_weak else fix,
        severity="info" if is_weak else "warning",
        share=late.share,
        at=hot,
        evidence={
            "rank": row.rank,
            "pid": own_id(row.pid),
            **({"host": row.host} if late.is_elsewhere else {}),
            "waited_ms": row.ms(late.share),
            "phase": late.phase,
            "longer_ms": row.ms(late.longer),
            **({"also_late": ", ".join(map(str, late.also))} if late.also else {}),
            **_collectives(evidence),
        },
    )


def _in_turn(evidence: Evidence) -> Finding | None:
    """A different rank is late in each step, and all others wait for it.

    If threads wait for cores, chance decides who is last, and another rule reports the waits.
    """
    if median([row.wait_ratio for row in evidence.ranks if row.wait_ratio is not None] or [0.0]) < REPORTED:
        return None  # spares comparing single steps, which takes longer
    turns = late_turns(evidence.ranks, lambda pid: evidence.view.of(pid).shared_steps)
    waits = median([row.main.delay_ratio or 0.0 for row in evidence.ranks] or [0.0])  # for cores
    if turns is None or turns.share < REPORTED + waits:
        return None
    # the phase with most samples of all ranks: they run the same code, and each of them is late now and then
    phases = DIVIDED if turns.phase == BETWEEN else (turns.phase,)
    samples = Samples.joined(rank.samples.where(_is_at_work, phase=phases) for rank in evidence.compared)
    phase = max(phases, key=lambda name: samples.phases[name])
    hot = samples.where(phase=phase).hottest()
    last = ", ".join(f"{row.rank} in {percent(share)}" for row, share in turns.last[:_NAMED])
    first = turns.last[0][0]
    return verdict(
        f"ranks take turns being late ({last} of the steps): {percent(turns.share)} of each step waits for the"
        f" last one, {ms_text(turns.longer_ms)} longer in {phase}{in_library(hot)}",
        without_cost(evidence, even_work(evidence), Interval.around(turns.share_if_even)),
        cause="in_turn",
        share=turns.share,
        at=hot,
        rank=first.rank,
        pid=own_id(first.pid),
        last_share=turns.last[0][1],
        last=last,
        waited_ms=turns.share * turns.step_ms,
        phase=phase,
        longer_ms=turns.longer_ms,
        steps_compared=turns.steps,
    )


def _division(ranks: Sequence[Evidence]) -> str | None:
    """How the model is divided over these ranks, by most of the samples that exchange something."""
    samples = Samples.joined(rank.samples for rank in ranks).where(doing="ranks")
    ways = samples.counted(lambda row: {way for frame in row.node.frames if (way := model_division(frame.file))})
    way, most = next(iter(ways.most_common(1)), (None, 0))
    return way if most > samples.total / 2 else None


def _is_at_work(node: StackNode) -> bool:
    """True if a rank is not waiting for another one."""
    return node.activity != "ranks"
