"""Rules about who sets the pace: the GPU, which is as it should be, or the CPU that launches its work."""

from __future__ import annotations

from tuimon.diagnosis.evidence.common import HotFunction, at, hottest_function, percent, row
from tuimon.diagnosis.evidence.gpu import GpuPicture, gpus_of, picture_of, utilisation
from tuimon.diagnosis.evidence.gpu_waits import Waits, waits_of
from tuimon.diagnosis.finding import Finding, Severity
from tuimon.session.session import Session

#: What launches: whoever sets the pace here, it is not the loader and not the side work.
COMPUTE = ("forward", "backward", "optimizer")
#: Share of the GPU's time in forward, backward and optimizer whose pace launches set, from which that holds it back;
#: and idle time, for certain, from which it is grave (proposals).
LAUNCH_SHARE = 0.20
LAUNCH_CRITICAL = 0.30
#: What the phases take on the CPU and on the GPU differs by no more, where launches set the pace (FIELD-NOTES: 10 %;
#: twice that, as CPU time is of all steps and GPU time of some).
SAME_LENGTH = 0.20
#: Launches that run ahead at every boundary by so much and never less, while nothing synchronises, have filled the
#: driver's queue (about 1,024 launches of 5-10 us: nothing else holds them this far ahead; proposal).
FULL_LEAD_US = 1000.0
#: Share of samples that wait for the GPU below which nothing synchronises to speak of.
FEW_WAITS = 0.05


def launch_bound(session: Session, pid: int) -> Finding | None:
    """The GPU keeps up with the CPU within the computation: it waits for each launch.

    Evidence: GPU events; at the end of forward, backward or optimizer launches are less than 100 us ahead, and what
    these phases take on the GPU is what they take on the CPU, give or take 20 %. What the GPU idles there lies between
    bounds: certain is what NVML's utilisation leaves, at most all of it. Threshold: 20 % of the GPU's time (proposal).
    Abstains without GPU events.
    """
    picture = picture_of(session, pid)
    if picture is None or picture.is_bottleneck:
        return None
    followed = [name for name in COMPUTE if _is_followed(session, pid, picture, name)]
    paced = min(picture.idle_in(*followed)[1], picture.idle_at_most)
    if paced < LAUNCH_SHARE:
        return None
    elsewhere = picture.idle_in(*(name for name in picture.phases if name not in followed))[1]
    at_least = max(0.0, picture.idle - elsewhere)
    lead = picture.lead("backward end")
    hot = _hottest_launches(session, pid, followed)
    severity: Severity = "critical" if at_least >= LAUNCH_CRITICAL else "warning"
    return Finding(
        rule="launch_bound",
        severity=severity,
        headline=(
            f"launches set the pace in {percent(paced)} of every step: the GPU{_used(session, pid)} is done before"
            f" the CPU comes with more{f': {at(hot.place)}' if hot else ''}"
        ),
        action=(
            "put more into each launch: a larger batch; torch.compile(model, mode='reduce-overhead') or CUDA graphs;"
            " a fused optimizer (fused=True); fewer small operations in Python"
        ),
        share_of_step=paced,
        where=(hot.place,) if hot else (),
        evidence={
            "gpu_idle_at_least": at_least,
            "gpu_idle_at_most": paced,
            "lead_us": lead.median_us if lead else None,
            "drained_ratio": lead.stream_idle_ratio if lead else None,
            "gpu_ms_per_step": picture.step_ms,
            "gpu_util": _utilisation(session, pid),
            "speedup_at_most": _gain(paced),
        },
        estimated_speedup=_gain(at_least),
    )


def _is_followed(session: Session, pid: int, picture: GpuPicture, name: str) -> bool:
    """Whether a phase ends with the GPU at the CPU's heels, and is as long on the one as on the other."""
    phase, on_cpu = picture.phases.get(name), row(session.phases(pid), name)
    if phase is None or phase.ms <= 0 or phase.idle_ms_at_most < phase.ms:
        return False
    if on_cpu is None or on_cpu.ms_per_step is None or on_cpu.estimated:
        return True  # its length on the CPU rests on samples
    return abs(phase.ms - on_cpu.ms_per_step) <= SAME_LENGTH * max(phase.ms, on_cpu.ms_per_step)


def _hottest_launches(session: Session, pid: int, followed: list[str]) -> HotFunction | None:
    """The user's line that launches most of the forward pass; what backward and optimizer launch is torch's own."""
    return hottest_function(session.hot_lines(pid, "forward")) if "forward" in followed else None


def compute_bound(session: Session, pid: int) -> Finding | None:
    """The GPU always has something to do: it is what the training takes its time for, as it should be.

    Evidence: GPU events; less than 10 % of the GPU's time idle or perhaps idle (proposal). Abstains without them.
    """
    picture = picture_of(session, pid)
    if picture is None or not picture.is_bottleneck:
        return None
    busy = "all" if picture.idle_at_most < 0.005 else f"at least {percent(1 - picture.idle_at_most)} of"
    heaviest = max(picture.phases, key=lambda name: picture.phases[name].ms)
    most = f", most of it in {heaviest} ({picture.phases[heaviest].ms:.3g} ms a step)"
    hot = hottest_function(session.hot_lines(pid, "forward")) if heaviest == "forward" else None
    return Finding(
        rule="compute_bound",
        severity="benign",
        headline=f"the GPU is the bottleneck, as it should be: busy {busy} the time{most}",
        action=(
            "the loop is in order; faster: lower precision, torch.compile, a smaller model, a faster GPU. What the CPU"
            " does meanwhile costs nothing"
        ),
        share_of_step=1.0 - picture.idle_at_most,
        where=(hot.place,) if hot else (),
        evidence={
            "gpu_idle_at_most": picture.idle_at_most,
            "gpu_ms_per_step": picture.step_ms,
            "gpu_util": _utilisation(session, pid),
            **{f"{name}_gpu_share": picture.share(name) for name in COMPUTE},
        },
    )


def queue_full(session: Session, pid: int) -> Finding | None:
    """Launches have run so far ahead that each waits for room in the driver's queue: harmless.

    Evidence: the GPU is the bottleneck, launches run ahead by a millisecond and more at every boundary, and few
    samples are at a line that waits for the GPU. Abstains without samples, and where the lead is not known.
    """
    picture = picture_of(session, pid)
    waits = waits_of(session, pid)
    if picture is None or not picture.is_bottleneck or waits is None or _waiting(waits) >= FEW_WAITS:
        return None
    leads = [(lead.min_us, lead.median_us) for lead in picture.time.leads]
    if not leads or any(least is None or median is None or least < FULL_LEAD_US for least, median in leads):
        return None
    ahead_ms = max(median for _, median in leads if median is not None) / 1e3
    hot = hottest_function(session.hot_lines(pid, "forward"))
    return Finding(
        rule="queue_full",
        severity="benign",
        headline=(
            f"launches run {ahead_ms:.3g} ms ahead and wait for room in the GPU's queue: the time that lines of the"
            " model seem to take on the CPU is this waiting"
        ),
        action="nothing: the CPU is ahead; look at GPU time, not at CPU time, for what is slow",
        where=(hot.place,) if hot else (),
        evidence={"lead_ms": ahead_ms, "gpu_idle_at_most": picture.idle_at_most},
    )


def _used(session: Session, pid: int) -> str:
    used = _utilisation(session, pid)
    return f" (used {percent(used)})" if used is not None else ""


def _waiting(waits: Waits) -> float:
    return waits.sync + waits.transfer


def _utilisation(session: Session, pid: int) -> float | None:
    known = [used for gpu in gpus_of(session, pid) if (used := utilisation(gpu)) is not None]
    return min(known, default=None)


def _gain(share: float) -> float | None:
    """Speed-up without this share; None where there would be none, or nothing left."""
    return 1.0 / (1.0 - share) if 0.01 <= share < 0.99 else None
