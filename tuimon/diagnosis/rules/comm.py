"""The rule about what ranks spend on communication."""

from __future__ import annotations

from msgspec import Struct

from tuimon.diagnosis.cells import cells
from tuimon.diagnosis.claims import CONFIDENCE, UNSURE, is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD, TOGETHER_MS, Exchange
from tuimon.diagnosis.finding import Change, Finding, Fix
from tuimon.diagnosis.interval import NONE, Interval
from tuimon.diagnosis.rule import RANKS, SAMPLES, Rule
from tuimon.diagnosis.rules.owner_options import advice_on_debugging, even_work, options
from tuimon.diagnosis.step_model.measured import host_model, without_cost
from tuimon.diagnosis.threshold import LARGE, MIN_SAMPLES, MOST, REPORTED
from tuimon.diagnosis.words import CHANGES_TRAINING, percent
from tuimon.session.ranks import RankRow
from tuimon.session.series import sampling_error
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import HotLine

#: How to make an exchange cheaper when there are as many exchanges.
_CHEAPER = "use a bf16 compression hook, or larger buckets (bucket_cap_mb)"
_WAITS: tuple[Activity, ...] = ("data", "idle", "io", "lock", "sleep", "sync")


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
    compared, rows = evidence.ranks.compared, {row.pid: row for row in evidence.ranks.rows}
    exchanges = evidence.ranks.exchanges
    measured = [
        found
        for rank in compared
        if rank.pid in rows and (found := _communication(rank, rows[rank.pid], exchanges.get(rank.pid))) is not None
    ]
    if not measured:
        return None
    least = min(measured, key=lambda rank: rank.share)
    divided = cells(evidence)
    for_cores = divided.where(via="rank").where(via="core").cpu
    if least.exchange is None and for_cores > divided.where(doing={"exchange"}).cpu:
        return None  # the others come late because they wait for a core
    if not is_sure(evidence, least.share, error=least.error):
        return None
    figures: dict[str, float | int | str | None] = {}
    if (exchange := least.exchange) is not None:  # the share comes from the GPU's clock
        waits = {"waits_for_later_ranks_at_least_share": exchange.waiting, "rests_on": exchange.rests_on}
        figures = {**exchange.figures, **waits}
    whole = len(measured) == len(compared) and len(rows) == evidence.world_size
    return Finding(
        headline=_headline(least, evidence.world_size),
        fixes=(_fix(evidence, least, whole=whole),),
        share_of_step=least.share,
        where=(least.hot.place,) if least.hot else (),
        evidence={
            "calls_share": least.called,
            "waiting_in_backward_share": least.in_backward,
            "ranks_measured": len(measured),
            "world_size": evidence.world_size,
            **figures,
        },
    )


def _fix(evidence: Evidence, least: Communication, *, whole: bool) -> Fix:
    """The fix; its gain is estimated only if all ranks are measured, as a wait may be for an unmeasured one."""
    exchange, debugging = least.exchange, advice_on_debugging("comm_bound", evidence)
    cheaper = f"{options(evidence).accumulate}, or use a larger batch per rank: {CHANGES_TRAINING}; or {_CHEAPER}"
    cheaper += ", or NCCL on GPUs" if evidence.gpu.is_used is False else ""
    if debugging is not None:  # until that is off, nobody knows what another change gains
        return Fix(debugging)
    if exchange is None:
        share = Interval.around(least.share, UNSURE) if whole else NONE
        model = host_model(evidence)._replace(claimed=Interval.around(share.middle))
        return model.fix(cheaper, Change("communication", 0.0), model.own_part(share), changes_training=True)
    if exchange.rests_on == "no_sync" and whole:
        return without_cost(evidence, cheaper, exchange.share, changes_training=True)
    gone = without_cost(evidence, "", Interval.around(least.share)).gain
    fix = Fix(even_work(evidence)) if exchange.is_uneven else Fix(cheaper, changes_training=True)
    return fix.by_up_to(gone.high if gone is not None else None)


def _headline(least: Communication, ranks: int) -> str:
    if least.exchange is None:
        inside = "" if least.hot else ", inside backward"
        return f"{percent(least.share)} of each step goes to communication between {ranks} ranks{inside}"
    phase = "" if least.exchange.rests_on == "multiprocessors" else " in backward"
    waits = f"the GPU waits at least {percent(least.share)} of each step{phase}"
    if least.exchange.is_uneven:
        return f"{waits}, mostly for later ranks: which of the {ranks} are late changes from step to step"
    return f"{waits} for gradients of the other {ranks - 1} ranks"


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
        exchange, in_backward = None, dict(row.waits).get("backward", 0.0)
        called = row.wait_ratio - in_backward
    error = sampling_error(called + main.part(doing=_WAITS), main.total)
    hot = calls.hottest() if called >= in_backward else None
    return Communication(called, in_backward, hot, error, exchange if in_backward > called else None)


COMM_BOUND = Rule(
    title="Communication between ranks",
    judge=comm_bound,
    needs=(RANKS, SAMPLES),
    thresholds=(REPORTED, *CONFIDENCE, MIN_SAMPLES, BACKWARD_PER_FORWARD, TOGETHER_MS, MOST, LARGE),
    contradicts_order=True,
    takes=lambda cell, _: cell.doing == "exchange",
)
