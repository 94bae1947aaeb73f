"""Advice on settings meant for debugging: where one is in force, it comes before any other change."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence

_ANOMALY = (
    "anomaly_detection",
    "turn off autograd's anomaly detection (set_detect_anomaly, detect_anomaly=): it records where each operation was"
    " called and searches each gradient for NaN",
)
#: By rule: the settings that slow down what it finds, and what to do about each.
_ADVICE = {
    "compute_bound_cpu": (_ANOMALY,),
    "launch_bound": (
        ("launch_blocking", "unset CUDA_LAUNCH_BLOCKING: with it, each launch waits for the GPU to finish"),
        _ANOMALY,
    ),
    "comm_bound": (
        (
            "distributed_debug",
            "unset TORCH_DISTRIBUTED_DEBUG=DETAIL: with it, the ranks compare each collective before they begin it",
        ),
    ),
}


def advice_on_debugging(rule: str, evidence: Evidence) -> str | None:
    """The fix for a debugging setting that slows down the work that this rule finds; None if none is on."""
    settings = evidence.process.debug_settings if evidence.process is not None else []
    return next((advice for setting, advice in _ADVICE[rule] if setting in settings), None)
