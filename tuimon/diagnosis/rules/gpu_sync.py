"""Rules about waiting for the GPU: a synchronisation that lets it run dry, and waiting that does no harm."""

from __future__ import annotations

import re

from tuimon.diagnosis.evidence.common import HotFunction, at, percent, row
from tuimon.diagnosis.evidence.gpu import GpuPicture, picture_of
from tuimon.diagnosis.evidence.gpu_waits import Waits, waits_of
from tuimon.diagnosis.finding import Finding, Severity
from tuimon.session.rows import ThreadRow
from tuimon.session.session import Session

#: Share of the step that the GPU idles after a synchronisation (FIELD-NOTES: 5 %), and from which it is grave
#: (proposal). The training thread must wait as much there: nothing else can be gained.
SYNC_SHARE = 0.05
SYNC_CRITICAL = 0.20
#: With less for certain, and less than ``SYNC_CRITICAL`` at most, it is only mentioned (proposal).
SYNC_CERTAIN = 0.02
#: Waiting from which it is worth saying that it costs nothing (proposal).
BENIGN_WAIT = 0.10
#: CPU of the threads that launch and wait from which one may worry (proposal).
SPINNING_CPU = 0.90
#: Share of the step in backward from which a busy thread there is asked about (proposal).
BACKWARD_SHARE = 0.30


_SCALER_CALL = re.compile(r"\bscaler\w*\.(?:step|unscale_|update)\(")
#: Operations that wait because the shape of what they give depends on values.
_SHAPED_BY_VALUES = re.compile(r"\b(?:nonzero|masked_select|unique)\(")


def sync_point(session: Session, pid: int) -> Finding | None:
    """A line asks the GPU for a value and lets its queue run dry; or it only waits while the GPU works (benign).

    Evidence: samples at ``.item()``, ``.cpu()``, ``print`` of a tensor and their like, and the idle time of the GPU in
    the step. Gained can be no more than the smaller of both. Threshold: 5 % (FIELD-NOTES). Abstains without GPU events
    or samples.
    """
    picture, waits = picture_of(session, pid), waits_of(session, pid)
    if picture is None or waits is None:
        return None
    by_transfer = waits.sync < waits.transfer
    hot = waits.hot_transfer if by_transfer else waits.hot_sync
    waited = waits.transfer if by_transfer else waits.sync
    if hot is None:
        return None
    at_most = min(waited, picture.idle_at_most)
    if at_most < SYNC_SHARE:
        return _harmless(hot, waited, picture) if picture.is_bottleneck and waited >= BENIGN_WAIT else None
    at_least = min(waited, picture.idle)
    severity: Severity = "critical" if at_least >= SYNC_CRITICAL else "warning"
    if at_least < SYNC_CERTAIN and at_most < SYNC_CRITICAL:
        severity = "info"
    return Finding(
        rule="sync_point",
        severity=severity,
        headline=(
            f"{at(hot.place)} waits for the GPU {percent(waited)} of the time and lets it run dry:"
            f" up to {percent(picture.idle_at_most)} of every step it then idles"
        ),
        action=_advice(hot, by_transfer),
        share_of_step=at_most,
        where=(hot.place,),
        evidence={
            "waiting_share": waited,
            "gpu_idle_at_least": picture.idle,
            "gpu_idle_at_most": picture.idle_at_most,
            "speedup_at_most": 1.0 / (1.0 - at_most) if at_most < 1.0 else None,
        },
        estimated_speedup=1.0 / (1.0 - at_least) if 0.01 <= at_least < 1.0 else None,
    )


def _harmless(hot: HotFunction, waited: float, picture: GpuPicture) -> Finding:
    return Finding(
        rule="sync_point",
        severity="benign",
        headline=f"{at(hot.place)} costs nothing here: it waits for the GPU, which is the bottleneck anyway",
        action="nothing; it would cost where the GPU has less to do, so read such values every so many steps",
        where=(hot.place,),
        evidence={"waiting_share": waited, "gpu_idle_at_most": picture.idle_at_most},
    )


def _advice(hot: HotFunction, by_transfer: bool) -> str:
    if by_transfer:
        return f"pin_memory=True in the DataLoader and non_blocking=True at {at(hot.place)}, so that it does not wait"
    source = hot.place.source
    if "synchronize(" in source:
        return f"leave out torch.cuda.synchronize() at {at(hot.place)}, but where time is measured"
    if _SCALER_CALL.search(source):
        return f"GradScaler has to look for infinities at {at(hot.place)}; autocast to bfloat16 needs no scaler"
    if _SHAPED_BY_VALUES.search(source):
        return (
            f"the size of what {at(hot.place)} gives depends on values: use torch.where, masks or a fixed size instead"
        )
    return (
        f"keep the value on the GPU at {at(hot.place)} (loss.detach()), and read it every 50 or 100 steps,"
        " or one step late"
    )


def spin_wait(session: Session, pid: int) -> Finding | None:
    """A thread is at 100 % CPU because CUDA polls while it waits for the GPU: harmless.

    Evidence: CPU of the training thread and of the autograd thread together, samples at a line that waits for the GPU,
    or backward on a GPU that always has something to do. Blocking instead saved 30 % CPU for 0.5 % of time (pytorch
    #28224). Abstains without GPU events or thread figures.
    """
    picture, waits = picture_of(session, pid), waits_of(session, pid)
    if picture is None or not picture.is_bottleneck:
        return None
    threads = [t for t in session.threads_of(pid) if t.tid == pid or t.role == "autograd"]
    cpu = [t.cpu_ratio for t in threads if t.cpu_ratio is not None]
    if not cpu or sum(cpu) < SPINNING_CPU:
        return None
    where = _what_spins(session, pid, waits, threads)
    if where is None:
        return None
    text, hot = where
    return Finding(
        rule="spin_wait",
        severity="benign",
        headline=f"{percent(min(1.0, sum(cpu)))} CPU {text} is CUDA polling for the GPU to finish, not work: harmless",
        action="nothing: CUDA polls because that is faster than to be woken; the core would be idle otherwise",
        where=(hot.place,) if hot else (),
        evidence={
            "cpu_ratio": sum(cpu),
            "waiting_share": waits.sync + waits.transfer if waits else None,
            "gpu_idle_at_most": picture.idle_at_most,
        },
    )


def _what_spins(
    session: Session, pid: int, waits: Waits | None, threads: list[ThreadRow]
) -> tuple[str, HotFunction | None] | None:
    if waits is not None and waits.sync + waits.transfer >= BENIGN_WAIT:
        hot = waits.hot_sync if waits.sync >= waits.transfer else waits.hot_transfer
        if hot is not None:
            return f"at {at(hot.place)}", hot
    backward = row(session.phases(pid), "backward")
    if backward is not None and backward.share >= BACKWARD_SHARE:
        busy = max(threads, key=lambda thread: thread.cpu_ratio or 0.0)
        return f"in backward(){' (its own thread)' if busy.role == 'autograd' else ''}", None
    return None
