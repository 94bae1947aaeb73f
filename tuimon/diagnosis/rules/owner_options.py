"""Advice on settings for debugging that are in force, and by the options of the library that owns a loop."""

from __future__ import annotations

import re

from tuimon.code_origin import package_of
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import Owner
from tuimon.diagnosis.words import CHANGES_TRAINING, at
from tuimon.records import Place

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
    "keras": "pass gradient_accumulation_steps to the optimizer",
}
_SAVES, _LOGS, _ANY = re.compile(r"save|checkpoint"), re.compile(r"log|metric|result"), re.compile("")
_CLIPS, _CONVERTS = re.compile(r"clip_grad|gradient_clip"), re.compile(r"cast|convert|slice|standardize")
#: The option for work beside the training, by the function that does it; the first that matches.
_LESS_OFTEN: dict[Owner, tuple[tuple[re.Pattern[str], str], ...]] = {
    "transformers": (
        (_CLIPS, f"set max_grad_norm=0 in TrainingArguments, if gradients need no clipping ({CHANGES_TRAINING})"),
        (_SAVES, "save less often: raise save_steps in TrainingArguments, or set save_strategy='epoch'"),
        (_LOGS, "log less often: raise logging_steps in TrainingArguments"),
        (_ANY, "pass the Trainer fewer callbacks, or raise logging_steps and save_steps in TrainingArguments"),
    ),
    "lightning": (
        (_CLIPS, f"leave out gradient_clip_val of the Trainer, if gradients need no clipping ({CHANGES_TRAINING})"),
        (_SAVES, "save less often: raise every_n_train_steps of ModelCheckpoint, or save once an epoch"),
        (_LOGS, "log less often: raise log_every_n_steps of the Trainer, or call self.log() in fewer steps"),
        (_ANY, "override fewer hooks, or pass the Trainer fewer callbacks and enable_progress_bar=False"),
    ),
    "keras": (
        (_SAVES, "save less often: save_freq of ModelCheckpoint"),
        (_CONVERTS, "pass model.fit() float32 arrays or a DataLoader of tensors: Keras converts others each time"),
        (_ANY, "pass model.compile() fewer metrics, and model.fit() fewer callbacks"),
    ),
}
#: Functions that do what can be done less often, by their name or that of their file.
_OPTIONAL = re.compile(r"callback|checkpoint|hook|log|metric|progress|report|result|save")


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


def less_by_option(owner: Owner | None, function: Place) -> str:
    """How to have a library do less of what one of its functions does, which the user does not call."""
    if owner is not None:
        return next(option for name, option in _LESS_OFTEN[owner] if name.search(function.function))
    package = package_of(function.file) or "the library"
    if _OPTIONAL.search(f"{function.file.rpartition('-packages/')[2]}:{function.function}") is None:
        return f"{package} itself calls {at(function)} in each step: larger batches need it less often"
    return (
        f"have {package} call {at(function)} less often: see its options for logging and checkpoints, and its callbacks"
    )
