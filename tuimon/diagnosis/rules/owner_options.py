"""Advice on settings for debugging that are in force, and by the options of the library that owns a loop."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import Owner

ANOMALY = (
    "anomaly_detection",
    "turn off autograd's anomaly detection (set_detect_anomaly, detect_anomaly=): it records where each operation was"
    " called and searches each gradient for NaN",
)
#: By rule: the settings that slow down what it finds, and what to do about each.
_ADVICE = {
    "compute_bound_cpu": (ANOMALY,),
    "launch_bound": (
        ("launch_blocking", "unset CUDA_LAUNCH_BLOCKING: with it, each launch waits for the GPU to finish"),
        ANOMALY,
    ),
    "comm_bound": (
        (
            "distributed_debug",
            "unset TORCH_DISTRIBUTED_DEBUG=DETAIL: with it, the ranks compare each collective before they begin it",
        ),
    ),
}
#: How to update once for several batches; a trainer turns the exchange of gradients off in between by itself.
ACCUMULATE: dict[Owner | None, str] = {
    None: "accumulate gradients of n batches under no_sync(), each loss divided by n",
    "transformers": "raise gradient_accumulation_steps in TrainingArguments",
    "lightning": "raise accumulate_grad_batches of the Trainer",
}


def advice_on_debugging(rule: str, evidence: Evidence) -> str | None:
    """The fix for a debugging setting that slows down the work that this rule finds; None if none is on."""
    settings = evidence.process.debug_settings if evidence.process is not None else []
    return next((advice for setting, advice in _ADVICE[rule] if setting in settings), None)


def even_work(evidence: Evidence) -> str:
    """The fix for ranks that have more to do than others in some steps."""
    return (
        "give all ranks equal work in each step: bucket or pack batches by length, with equal numbers of items, or"
        f" {ACCUMULATE[evidence.gpu.launching.owner]}"
    )
