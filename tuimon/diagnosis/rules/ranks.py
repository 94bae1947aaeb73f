"""The rule about a rank that all others wait for."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.steps import GpuSteps
from tuimon.diagnosis.evidence.lines import HotFunction
from tuimon.diagnosis.evidence.steps import mean_step_ms
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.needs import RANKS
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.speedup import speedup
from tuimon.diagnosis.threshold import TRACEML, Threshold
from tuimon.diagnosis.words import at_hot, percent
from tuimon.node_ids import own_id

WARN_SHARE = Threshold(0.10, "share of the step that the other ranks wait for one, from which it is a warning", TRACEML)
EXPLAINED = Threshold(
    0.5,
    "share of the others' wait that the late rank's own longer phase must explain",
    "our choice: most of it; else the wait is for the network, or for a rank that is not measured",
)


class _Rank(NamedTuple):
    rank: int
    evidence: Evidence
    step_ms: float
    gpu: GpuSteps | None = None  # where all ranks have GPU times: their CPUs do not wait in backward

    def ms(self, phase: str) -> float:
        """Of one phase, a step."""
        if self.gpu is not None:
            return self.gpu.phases[phase].ms if phase in self.gpu.phases else 0.0
        found = self.evidence.phase(phase)
        return (found.ms_per_step or 0.0) if found else 0.0


def straggler_rank(evidence: Evidence) -> Finding | None:
    """One rank is late and all others wait for it in the gradients' all-reduce, inside backward.

    The rank with the shortest backward waited least: it is the late one, if its phases before backward took longer.
    """
    ranks = _ranks(evidence)
    if len(ranks) < 2:
        return None
    late, *others = sorted(ranks, key=lambda r: r.ms("backward"))
    waited_ms = median(r.ms("backward") for r in others) - late.ms("backward")
    share = waited_ms / median(r.step_ms for r in ranks)
    phase, longer_ms = max(
        ((p, late.ms(p) - median(r.ms(p) for r in others)) for p in ("data", "forward", "other")), key=lambda x: x[1]
    )
    if share < WARN_SHARE or longer_ms < EXPLAINED * waited_ms:
        return None
    hot = late.evidence.hottest_in(phase)
    return Finding(
        rule="straggler_rank",
        severity="warning",
        headline=_headline(late, others, share, phase, longer_ms, hot),
        action=f"give rank {late.rank} as much work as the others: look at its {phase}, its data, its machine",
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "rank": late.rank,
            "pid": own_id(late.evidence.pid),
            "waited_ms": waited_ms,
            "phase": phase,
            "longer_ms": longer_ms,
        },
        estimated_speedup=speedup(1.0 - share),
    )


def _headline(
    late: _Rank, others: list[_Rank], share: float, phase: str, longer_ms: float, hot: HotFunction | None
) -> str:
    who = f"rank {others[0].rank} waits" if len(others) == 1 else f"the other {len(others)} ranks wait"
    place = f" at {at_hot(hot)}" if hot else ""
    return f"{who} {percent(share)} of every step for rank {late.rank}, {longer_ms:.3g} ms longer in {phase}{place}"


def _ranks(evidence: Evidence) -> list[_Rank]:
    """The measured ranks of the training in focus."""
    found = []
    for rank in evidence.ranks:
        process = rank.process
        if process is None or process.rank is None or process.ended or rank.phases is None:
            continue
        length_ms = mean_step_ms(rank.phases)
        if length_ms:
            found.append(_Rank(process.rank, rank, length_ms))
    if all(rank.evidence.gpu_steps is not None for rank in found):
        return [rank._replace(gpu=rank.evidence.gpu_steps) for rank in found]
    return found


RULES = (
    Rule(
        name="straggler_rank",
        title="A rank that others wait for",
        order=80,
        judge=straggler_rank,
        explanation=(
            "One rank is late, and all others wait for it inside backward, where gradients are reduced. It rests on the"
            " ranks' phases, on the GPUs' clocks where all have times there: the one with the shortest backward waited"
            " least, and is the late one if its data, forward or side work took longer. It abstains with fewer than two"
            " measured ranks."
        ),
        needs=(RANKS,),
        thresholds=(WARN_SHARE, EXPLAINED),
        contradicts_order=True,
    ),
)
