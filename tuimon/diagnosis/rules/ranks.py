"""Rules about ranks: their communication, and a late rank for which all others wait."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from tuimon.diagnosis.cells import cells_of
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import in_inner_loop, update_path
from tuimon.diagnosis.evidence.ranks import Exchange, LateRank, late_on_gpu, late_rank, late_turns
from tuimon.diagnosis.finding import Figure, Finding, Fix, new_finding
from tuimon.diagnosis.line_text import CHANGES_TRAINING, at_hot, in_library, most_at, work_at
from tuimon.diagnosis.rule import UNSURE, is_sure
from tuimon.diagnosis.rules.advice import advice_on_debugging, even_work, options
from tuimon.diagnosis.step_model import without, without_cost
from tuimon.interval import NONE, Interval
from tuimon.node_ids import own_id
from tuimon.records import BETWEEN, DIVIDED
from tuimon.session.ranks import RankRow
from tuimon.session.series import sampling_error
from tuimon.session.stacks.activity import WAITS, outer_calls
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.text import ms_text, percent
from tuimon.threshold import MIN_SAMPLES, NEARLY_ALL, REPORTED, SMALL, TINY
from tuimon.torch_code import model_division

_FEWER_RANKS = (
    "divide layers over fewer ranks, and the batch over the others (a mesh of two dimensions): each layer that ranks"
    " share exchanges in forward and in backward"
)
_LARGER_SHARDS = (
    "shard whole blocks (fully_shard(), auto_wrap_policy), not single layers: all ranks gather each sharded module in"
    " forward and in backward; if there is memory, set reshard_after_forward=False, or use DistributedDataParallel"
)
#: By the division of the model, for exchanges that depend on it.
_BY_DIVISION = {"layers": _FEWER_RANKS, "shards": _LARGER_SHARDS}
#: For a loop that calls ``all_reduce`` itself: in any case, and if it makes many such calls.
_WHILE_COMPUTING = (
    "let DistributedDataParallel exchange the gradients instead of {}: it joins them into buckets and exchanges these"
    " during backward"
)
_AT_ONCE = (
    "exchange all gradients at {} with one call, as one flat tensor; or let DistributedDataParallel do it, which joins"
    " them into buckets and exchanges these during backward"
)
_BUFFERS = (
    "set broadcast_buffers=False in DistributedDataParallel if the model's buffers are equal on all ranks: else rank 0"
    " sends them before each forward pass"
)
#: torch's communication hooks, and the remedy.
_HOOK_FILE = re.compile(r"/ddp_comm_hooks/(\w+\.py)$")
_WITHOUT_HOOK = (
    "leave out the communication hook (torch's {}), or use it between machines only: in backward, it computes before"
    " and after each exchange, which may take longer than it saves"
)
_METRICS = "let the metrics at {} exchange once an epoch: leave out dist_sync_on_step=True, and compute() in steps"
#: For other lines of the user, by the calls on them: the first that matches counts.
_BY_CALL = {
    r"\blog(?:_dict)?\b": (
        "call log() at {} without sync_dist=True, or with on_step=False, on_epoch=True: the ranks then exchange its"
        " values once an epoch, not in each step"
    ),
    r"\bnew_group\b|\binit_process_group\b": "make the group at {} once, before the loop",
    r"\b(?:DDP|DistributedDataParallel|FSDP|FullyShardedDataParallel|fully_shard)\b": (
        "wrap the model at {} once, before the loop: each time the ranks exchange all weights"
    ),
    r"_object(?:_list|s)?\b": "exchange tensors instead of objects at {}, which are pickled; or exchange less often",
    r"\b(?:monitored_)?barrier\b|\bwait_for_everyone\b": "leave out the barrier at {}: in backward ranks wait anyway",
    r"\b(?:all_|broadcast|gather|reduce|scatter)": "exchange less often at {}, or everything with one call",
}
#: A step makes many exchanges if they have this many times the bytes of the largest: next to one flat exchange of all
#: gradients, it may average a loss.
_SEVERAL = 2.0


class Communication(Struct, frozen=True, gc=False):
    """The time that one rank spends on communication, or waits in it for others; shares are of its time."""

    called: float  # share of samples in torch.distributed
    in_backward: float  # backward that waits: on the CPU neither running nor runnable, on a GPU by ``exchange``
    hot: HotLine | None
    error: float  # of ``share``, half the width of its 95 % interval
    exchange: Exchange | None = None  # if the share rests on GPU times

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
    rows = {row.pid: row for row in evidence.ranks}
    compared = [(rank, rows[rank.pid]) for rank in evidence.compared if rank.pid in rows]
    communications = (_communication(rank, row, evidence.exchanges.get(rank.pid)) for rank, row in compared)
    measured = [communication for communication in communications if communication is not None]
    least = min(measured, key=lambda communication: communication.share, default=None)
    if least is None or not is_sure(evidence, least.share, error=least.error):
        return None
    # else a wait may be for a rank that is not measured
    all_measured = len(measured) == len(evidence.compared) and len(rows) == evidence.world_size
    if least.exchange is not None:
        headline, fix, figures = _on_gpu(evidence, least.share, least.exchange, all_measured=all_measured)
    else:
        cells = cells_of(evidence)
        if cells.where(via="rank").where(via="core").share > cells.where(doing={"exchange"}).share:
            return None  # the others come late because they wait for a core
        headline, fix, figures = _on_cpu(evidence, least, all_measured=all_measured)
    collectives = _collectives(evidence)
    return new_finding(
        ": ".join((headline, *collectives.values())),
        advice_on_debugging("comm_bound", evidence) or fix,  # until that is off, the gain of a change is unknown
        share=least.share,
        at=least.hot,
        evidence={
            "calls_share": least.called,
            "waiting_in_backward_share": least.in_backward,
            "ranks_measured": len(measured),
            "world_size": evidence.world_size,
            **collectives,
            **figures,
        },
    )


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


def _on_cpu(evidence: Evidence, least: Communication, *, all_measured: bool) -> tuple[str, Fix, dict[str, Figure]]:
    """The headline, the fix and further figures of communication that samples or the threads' sleep show."""
    inside = "" if least.hot is not None else ", inside backward"
    share, ranks = percent(least.share), evidence.world_size
    headline = f"{share} of each step goes to communication between {ranks} ranks{inside}"
    if (divided := _BY_DIVISION.get(_division(evidence.compared) or "")) is not None:
        return headline, Fix(divided), {}
    action = _line_advice(evidence, least.hot) if least.hot is not None else None
    if action is None and evidence.collectives and evidence.collectives[0].name == "broadcast":
        action = _BUFFERS
    if action is None and (hook := _comm_hook(evidence)) is not None:
        headline += f", with a communication hook ({hook})"
        fix = Fix(_WITHOUT_HOOK.format(hook))
        return headline, fix.with_upper_bound(1.0 / (1.0 - min(NEARLY_ALL, least.share))), {}
    less = action or _less_communication(evidence)
    saved = Interval.around(least.share, UNSURE) if all_measured else NONE
    claimed = Interval.around(saved.middle)
    fix = without(evidence, "communication", less, saved, claimed=claimed, changes_training=action is None)
    return headline, fix, {}


def _comm_hook(evidence: Evidence) -> str | None:
    """The file of torch's with a hook that compresses gradients before their exchange; None if there is none."""
    samples = Samples.joined((evidence.samples, *evidence.others.values()))
    names = samples.counted(lambda row: [at[1] for each in row.node.frames if (at := _HOOK_FILE.search(each.file))][:1])
    name, count = next(iter(names.most_common(1)), ("", 0))
    return name if count >= MIN_SAMPLES else None


def _line_advice(evidence: Evidence, hot: HotLine) -> str | None:
    """The advice on a user line that exchanges something outside backward; None if its text says nothing."""
    line, calls = at_hot(hot), " ".join(outer_calls(hot.place.source))
    if "all_reduce" in calls:
        return (_AT_ONCE if _exchanges_many(evidence) else _WHILE_COMPUTING).format(line)
    if (advice := next((advice for names, advice in _BY_CALL.items() if re.search(names, calls)), None)) is not None:
        return advice.format(line)
    is_metric = most_at(hot.place, [evidence.samples], lambda node: node.computes_metric or None)
    return _METRICS.format(line) if is_metric else None


def _on_gpu(
    evidence: Evidence, share: float, exchange: Exchange, *, all_measured: bool
) -> tuple[str, Fix, dict[str, Figure]]:
    """The headline, the fix and further figures of an exchange that the GPU's clock shows."""
    phase = "" if exchange.rests_on in ("multiprocessors", "trace") else " in backward"
    whom = " for gradients of the other rank"
    if evidence.world_size > 2:
        whom = f" for gradients of the other {evidence.world_size - 1} ranks"
    if exchange.is_uneven:
        whom = f", mostly for whichever of the {evidence.world_size} ranks is late in that step"
    if exchange.rests_on == "no_sync" and all_measured:
        fix = without_cost(evidence, _less_communication(evidence), exchange.share, changes_training=True)
    else:
        action = even_work(evidence) if exchange.is_uneven else _less_communication(evidence)
        fix = without_cost(evidence, action, Interval.around(share), changes_training=not exchange.is_uneven)
        fix = fix.with_upper_bound(fix.gain and fix.gain.high)
    figures: dict[str, Figure] = {
        **exchange.figures,
        "waits_for_later_ranks_at_least_share": exchange.waiting,
        "rests_on": exchange.rests_on,
    }
    means = [row.means for row in evidence.gpu.rows if row.means is not None]
    nvlink = [rate for gpu in means for rate in (gpu.nvlink_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s)]
    if known := [rate for rate in nvlink if rate is not None]:
        figures["nvlink_bytes_per_s"] = max(known)  # a rank that waits for a late one moves little
    return f"the GPU waits at least {percent(share)} of each step{phase}{whom}", fix, figures


def _less_communication(evidence: Evidence) -> str:
    """The fix for exchanges that are made as they should be."""
    compress = "a bf16 compression hook, or " if _comm_hook(evidence) is None else ""
    return (
        f"{options(evidence).accumulate}, or use a larger batch per rank: {CHANGES_TRAINING}; or use {compress}larger"
        f" buckets (bucket_cap_mb){', or NCCL on GPUs' if evidence.gpu.is_used is False else ''}"
    )


def _exchanges_many(evidence: Evidence) -> bool:
    """True if a step makes many ``all_reduce``: as counted, or else by a loop around it within the training's."""
    for collective in evidence.collectives:
        if collective.name == "all_reduce" and collective.bytes and collective.largest_bytes:
            return collective.bytes >= _SEVERAL * collective.largest_bytes
    return evidence.samples.where(in_inner_loop(evidence.samples), doing="ranks").total >= MIN_SAMPLES


def _collectives(evidence: Evidence) -> dict[str, str]:
    """The largest collectives of a step, as evidence; empty if they are unknown."""
    most = max((collective.bytes or 0.0 for collective in evidence.collectives), default=0.0)
    large = [collective.text for collective in evidence.collectives if (collective.bytes or 0.0) >= TINY * most]
    return {"collectives": "; ".join(large[:2])} if large else {}


def _division(ranks: Sequence[Evidence]) -> str | None:
    """How the model is divided over these ranks, by most of the samples that exchange something."""
    samples = Samples.joined(rank.samples for rank in ranks).where(doing="ranks")
    ways = samples.counted(lambda row: {way for frame in row.node.frames if (way := model_division(frame.file))})
    way, most = next(iter(ways.most_common(1)), (None, 0))
    return way if most > samples.total / 2 else None


#: Most ranks that the headline names.
_NAMED = 4
#: The advice on a late rank, by the phase that takes longer.
_LESS_WORK = {
    "data": "make its batches as cheap as the others', and its reads as fast",
    "other": "do this side work less often, or in the background",
}


def straggler_rank(evidence: Evidence) -> Finding | None:
    """One rank is late and all others wait for it, in backward or wherever ranks exchange something.

    Or a different rank is late in each step (``in_turn``). The late rank is the one whose own work, without waits in
    collectives, takes longest.
    """
    rows, in_turn = evidence.ranks, _late_in_turn(evidence)
    late_process, late_gpu = late_rank(rows), late_on_gpu(rows, evidence.compared_gpus)
    candidates = [late for late in (late_process, late_gpu) if late is not None]
    late = max(candidates, key=lambda candidate: candidate.share, default=None)
    if late is None or not is_sure(evidence, late.share, error=late.error):
        return in_turn
    if in_turn is not None and late.share < (in_turn.share_of_step or 0.0):
        return in_turn
    row, is_weak = late.row, late.why == "power"
    if len(late.others) + 1 < evidence.world_size and (row.wait_ratio or 0.0) >= SMALL:
        return in_turn  # it waits itself for a rank that is not measured
    clause, fix, hot = (_late_process if late is late_process else _late_gpu)(evidence, late)
    waiting = [other.rank for other in late.others if other.rank not in late.also]
    who, wait = (f"rank {waiting[0]}", "waits") if len(waiting) == 1 else ("the others", "wait")
    whom = f"{'ranks' if late.also else 'rank'} {', '.join(map(str, (row.rank, *late.also)[:_NAMED]))}"
    where = f" on {row.host}" if late.is_elsewhere else ""
    return new_finding(
        f"{who} {'may wait' if is_weak else wait} {percent(late.share)} of the time for {whom}{where}, {clause}",
        fix,
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


def _late_process(evidence: Evidence, late: LateRank) -> tuple[str, Fix, HotLine | None]:
    """The headline's clause on a rank whose own work takes longer, the fix, and the line of that work."""
    row, rank, saved = late.row, evidence.of_rank(late.row.pid), late.share
    hot = rank.samples.where(_is_at_work, phase=late.phase).hottest() if rank is not None else None
    by = f"{ms_text(row.late_ms)} " if row.late_ms is not None else ""  # as panes and reports show it
    clause = f"which is {by}late, mostly in {late.phase}" if by else f"which takes longer in {late.phase}"
    if late.why == "stopped":
        clause = f"which is stopped {percent(row.thread.stopped_ratio)} of the time"
        action = f"find who stops rank {row.rank}'s process: a tool that limits its CPU, or a debugger"
    elif late.why == "no core":
        clause = f"whose training thread waits {percent(row.thread.delay_ratio or 0.0)} of the time for a core"
        action = f"give rank {row.rank} cores of its own: check what else runs on its machine, and its CPU limit"
    elif late.why == "collections":
        clause += ", in the garbage collector"
        when = "seldom, or in all ranks at the same step: gc.freeze(), gc.disable()"
        action = f"collect garbage in rank {row.rank} {when}"
    elif _division(evidence.compared) == "stages":
        action = f"move layers from rank {row.rank}'s stage of the pipeline to those that wait"
        saved = _saved_by_moving(evidence, late)
    else:
        place = work_at(hot, update_path(rank.samples)) if rank is not None and hot is not None else late.phase
        advice = _LESS_WORK.get(late.phase, "compare its batches and its machine with the others'")
        action = f"rank {row.rank} is {by}late in {place}: {advice}"
    fix = without_cost(evidence, action, Interval.around(saved, late.error))
    return clause + in_library(hot), fix, hot


def _late_gpu(evidence: Evidence, late: LateRank) -> tuple[str, Fix, None]:
    """The headline's clause on a rank whose GPU computes while the others' GPUs wait, and the fix."""
    action = f"compare rank {late.row.rank}'s batches, and its GPU's clocks and temperature, with the others'"
    figure, sign = "sm_ratio", ", with {} of the multiprocessors busy (GPUs that wait: {})"
    if late.why == "power":
        figure, sign = "power_ratio", " (weak evidence: it draws {} of its power limit, the others {} at full clock)"
    elif late.why == "slow gpu":
        figure, sign = "clock_ratio", ", at {} of the highest clock (GPUs that wait: {})"
        tool = "nvidia-smi -q -d CLOCK,TEMPERATURE,PERFORMANCE"
        action = f"find what holds the clocks of rank {late.row.rank}'s GPU down: {tool}"
    waiting = [row for row in late.others if row.rank not in late.also]
    gpus = [evidence.compared_gpus[row.pid] for row in (late.row, *waiting)]
    computing, *idling = (getattr(gpu, figure) or 0.0 for gpu in gpus)
    clause = f"whose {'GPUs compute' if late.also else 'GPU computes'} meanwhile"
    clause += sign.format(percent(computing), percent(median(idling)))
    if late.why == "power":
        return clause, Fix(action), None
    saved = Interval(_saved_by_moving(evidence, late), late.share)
    return clause, without_cost(evidence, action, saved).with_open_gain, None


def _saved_by_moving(evidence: Evidence, late: LateRank) -> float:
    """The share saved by moving layers, or a part of the batch, to the other ranks, where they are work as well."""
    return late.share * (1.0 - (1 + len(late.also)) / evidence.world_size)


def _late_in_turn(evidence: Evidence) -> Finding | None:
    """A different rank is late in each step, and all others wait for it.

    If threads wait for cores, chance decides who is last, and another rule reports the waits.
    """
    if median([row.wait_ratio for row in evidence.ranks if row.wait_ratio is not None] or [0.0]) < REPORTED:
        return None  # spares comparing single steps, which takes longer
    turns = late_turns(evidence.ranks, lambda pid: evidence.view.of(pid).shared_steps)
    waits = median([row.thread.delay_ratio or 0.0 for row in evidence.ranks] or [0.0])  # for cores
    if turns is None or turns.share < REPORTED + waits:
        return None
    # the phase with most samples of all ranks: they run the same code, and each of them is late now and then
    phases = DIVIDED if turns.phase == BETWEEN else (turns.phase,)
    samples = Samples.joined(rank.samples.where(_is_at_work, phase=phases) for rank in evidence.compared)
    phase = max(phases, key=lambda name: samples.phases[name])
    hot = samples.where(phase=phase).hottest()
    last = ", ".join(f"{row.rank} in {percent(share)}" for row, share in turns.last[:_NAMED])
    first = turns.last[0][0]
    return new_finding(
        f"ranks take turns being late ({last} of the steps): {percent(turns.share)} of each step is a wait for the"
        f" slowest, which takes {ms_text(turns.longer_ms)} longer in {phase}{in_library(hot)}",
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


def _is_at_work(node: StackNode) -> bool:
    """True if a rank is not waiting for another one."""
    return node.activity != "ranks"
