"""The rule about copies to the GPU that the training thread waits for."""

from __future__ import annotations

from tuimon.diagnosis.evidence.common import HotFunction, at, percent
from tuimon.diagnosis.evidence.gpu import GpuPicture, gpus_of, picture_of
from tuimon.diagnosis.evidence.gpu_waits import waits_of
from tuimon.diagnosis.evidence.workers import training_loader
from tuimon.diagnosis.finding import Finding
from tuimon.session.session import Session

#: Share of the step in copies (FIELD-NOTES: 10 %), and from which it is grave (proposal).
TRANSFER_SHARE = 0.10
TRANSFER_CRITICAL = 0.30
#: Pinned memory is copied in about half the time (proposal).
PINNED_RATIO = 0.5


def transfer_bound(session: Session, pid: int) -> Finding | None:
    """Batches are copied to the GPU while training thread and GPU wait for it: memory that is not pinned.

    Evidence: samples at ``.to(...)``, ``.cuda()`` and their like, less what they waited for the GPU to come to the copy
    at all (the launch lead at the fetch's end); where the lead is not known, what forward takes longer on the GPU than
    backward, which without a copy it does not. Threshold: 10 % of the step (FIELD-NOTES). Abstains without GPU events
    or samples.
    """
    picture, waits = picture_of(session, pid), waits_of(session, pid)
    if picture is None or waits is None or waits.hot_transfer is None or waits.transfer < TRANSFER_SHARE:
        return None
    ahead_ms = _ahead_ms(picture)
    if ahead_ms is not None:
        share = min(waits.transfer - ahead_ms / picture.step_ms, picture.share("forward"))
    else:
        share = min(waits.transfer, picture.share("forward") - picture.share("backward"))
    if share < TRANSFER_SHARE:
        return None
    loader = training_loader(session, pid)
    rates = [rate for gpu in gpus_of(session, pid) if (rate := gpu.latest.pcie_rx_bytes_per_s) is not None]
    pinned = loader.facts.pin_memory if loader is not None else None
    after = 1.0 - share if pinned else 1.0 - share * PINNED_RATIO
    return Finding(
        rule="transfer_bound",
        severity="critical" if share >= TRANSFER_CRITICAL else "warning",
        headline=(
            f"{percent(share)} of every step goes to copying the batch to the GPU while all wait:"
            f" {at(waits.hot_transfer.place)}"
        ),
        action=_advice(waits.hot_transfer, pinned),
        share_of_step=share,
        where=(waits.hot_transfer.place,),
        evidence={
            "waiting_share": waits.transfer,
            "lead_ms": ahead_ms,
            "copy_ms_per_step": share * picture.step_ms,
            "pcie_rx_bytes_per_s": max(rates, default=None),
            "pinned": None if pinned is None else int(pinned),
            "speedup_at_most": 1.0 / (1.0 - share) if share < 1.0 else None,
        },
        estimated_speedup=1.0 / after if 0.0 < after < 1.0 else None,
    )


def _ahead_ms(picture: GpuPicture) -> float | None:
    """How long the GPU still has to do when the batch is there; None where that is not known."""
    lead = picture.lead("fetch end") or picture.lead("optimizer end")
    if lead is None:
        return None
    if lead.median_us is not None:
        return max(0.0, lead.median_us / 1e3)
    return 0.0 if lead.stream_idle_ratio >= 0.9 else None


def _advice(hot: HotFunction, pinned: bool | None) -> str:
    place = at(hot.place)
    if pinned:
        return f"non_blocking=True at {place}, and copy the next batch on a stream of its own meanwhile"
    return (
        f"pin_memory=True in the DataLoader and non_blocking=True at {place};"
        " send small types (uint8) and convert them on the GPU"
    )
