"""The rule about what ranks spend on talking to each other."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.diagnosis.evidence.common import HotFunction, at, hottest_of, percent, row, uses_gpu
from tuimon.diagnosis.evidence.workers import MIN_SAMPLES
from tuimon.diagnosis.finding import Finding
from tuimon.session.samples.activity import activity_of
from tuimon.session.session import Session

#: Share of the step in communication (FIELD-NOTES: 10 %), and from which it is grave (proposal).
COMM_SHARE = 0.10
COMM_CRITICAL = 0.30
_WAITS = ("data", "idle", "io", "lock", "sleep", "sync")


class _Talk(NamedTuple):
    """What one rank spends on communication; shares are of its time."""

    called: float  # samples in torch.distributed
    in_backward: float  # backward in which the training thread neither runs nor waits for a core
    hot: HotFunction | None

    @property
    def share(self) -> float:
        return min(1.0, self.called + self.in_backward)


def comm_bound(session: Session, pid: int) -> Finding | None:
    """Ranks spend their steps on exchanging gradients or other tensors.

    Evidence: samples in ``torch.distributed``, and time inside backward in which the training thread neither computes
    nor waits for a core: there DistributedDataParallel waits for its all-reduce. The rank that waits least tells: what
    others wait longer, they wait for it (``straggler_rank``). Threshold: 10 % (FIELD-NOTES). Abstains with less than
    two ranks, without samples or schedstat; with GPUs, whose collectives the CPU does not wait for, only samples count.
    """
    process = session.process(pid)
    if process is None or (process.world_size or 1) < 2:
        return None
    talks = {rank: talk for rank in session.trainers() if (talk := _talk(session, rank)) is not None}
    if not talks:
        return None
    least = min(talks, key=lambda rank: talks[rank].share)
    talk = talks[least]
    if talk.share < COMM_SHARE:
        return None
    hot = talk.hot
    share = talk.share
    return Finding(
        rule="comm_bound",
        severity="critical" if share >= COMM_CRITICAL else "warning",
        headline=(
            f"{percent(share)} of every step goes to communication between {process.world_size} ranks"
            f"{f', at {at(hot.place)}' if hot else ', inside backward'}"
        ),
        action=(
            "talk less often or less: gradient accumulation with no_sync(), a larger batch per rank,"
            " gradient_as_bucket_view, a bf16 compression hook; NCCL instead of gloo where there are GPUs"
        ),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "calls_share": talk.called,
            "waiting_in_backward_share": talk.in_backward,
            "ranks_measured": len(talks),
            "world_size": process.world_size,
        },
        estimated_speedup=1.0 / (1.0 - share) if len(talks) == process.world_size and share < 1.0 else None,
    )


def _talk(session: Session, pid: int) -> _Talk | None:
    hotspots = session.hotspots(pid)
    samples = hotspots.samples_of(pid) if hotspots else []
    total = sum(sample.count for sample in samples)
    if total < 3 * MIN_SAMPLES:
        return None
    called = waiting = 0
    placed = []
    for sample in samples:
        doing = activity_of([session.frames[number] for number in sample.stack])
        if doing == "ranks" and sample.phase != "backward":
            called += sample.count
            placed.append((session.frames.user_place(sample.stack), sample.count))
        elif doing in _WAITS:
            waiting += sample.count
    in_backward = _idle_in_backward(session, pid, (called + waiting) / total)
    if in_backward is None:
        return None
    hot = hottest_of(placed) if called >= in_backward * total else None
    return _Talk(called / total, in_backward, hot)


def _idle_in_backward(session: Session, pid: int, elsewhere: float) -> float | None:
    """Share of time; None where it is not known how much the training thread runs. 0 with a GPU: it is not known."""
    if uses_gpu(session, pid) is not False:
        return 0.0
    threads = session.process_threads(pid)
    main = next((t for t in threads.threads if t.tid == pid), None) if threads else None
    backward = row(session.phases(pid), "backward")
    if main is None or main.cpu_ratio is None or main.delay_ratio is None or backward is None:
        return None
    return max(0.0, min(backward.share, 1.0 - main.cpu_ratio - main.delay_ratio - elsewhere))
