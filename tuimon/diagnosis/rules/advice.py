"""Advice: on debugging settings, in terms of the library that owns the loop, and from libraries' warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from tuimon.code_origin import package_of
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.line_text import CHANGES_TRAINING
from tuimon.records import Place
from tuimon.text import at, code_place

ANOMALY = (
    "anomaly_detection",
    "turn off autograd's anomaly detection (set_detect_anomaly, detect_anomaly=): it records where each operation was"
    " called and searches each gradient for NaN",
)
#: By rule: the debugging settings that slow down the work that it finds, and the advice on each.
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
#: Patterns for the names of functions, by what these do.
_SAVES, _LOGS, _CLIPS = "save|checkpoint", "log|metric|result", "clip_grad|gradient_clip"
_CONVERTS, _ANY = "cast|convert|slice|standardize", ""
#: Functions whose work can be done less often, by their own name or their file's.
_OPTIONAL = re.compile(r"callback|checkpoint|hook|log|metric|progress|report|result|save")
_ONE_LAUNCH = "one launch instead of many"


class LibraryOptions(NamedTuple):
    """The advice in terms of the library that owns the loop; by default, for the user's own loop."""

    #: A pattern for the library's files that are on the stacks of a loop that it owns.
    loop: str = ""
    #: Advice on side work, by the function that does it; the first match counts.
    less_often: Mapping[str, str] = {}
    #: How to update once for several batches; a trainer pauses the exchange of gradients in between by itself.
    accumulate: str = "accumulate gradients of n batches under no_sync(), each loss divided by n"
    compile: str = f"use torch.compile(model, mode='reduce-overhead') or CUDA graphs: {_ONE_LAUNCH}"
    batch: str = "use a batch"
    autocast: str = ""  # how to turn it off
    workers: str = "num_workers"
    pin: str = "pin_memory=True in the DataLoader"
    fused: str = "fused=True"
    environments: str = "a vectorised environment"  # that runs several, in processes
    evaluate: str = ""  # the options that say how often it evaluates

    def without_conversion(self, function: Place) -> str | None:
        """How to keep the library from converting data, if one of its functions does that; else None."""
        return self.less_often.get(_CONVERTS) if re.search(_CONVERTS, function.function) else None

    def less_of(self, function: Place) -> str:
        """How to make the library do less of the work of its function, which the user does not call."""
        text = f"{function.file.rpartition('/')[2]}:{function.function} {function.source}"
        for names, option in self.less_often.items():
            if re.search(names, text):
                return option
        package = package_of(function.file) or "the library"
        if _OPTIONAL.search(f"{function.file.rpartition('-packages/')[2]}:{function.function}") is None:
            return f"{package} itself calls {at(function)} in each step: larger batches need it less often"
        see = "see its options for logging and checkpoints, and its callbacks"
        return f"have {package} call {at(function)} less often: {see}"


#: The first one that owns the loop counts.
LIBRARIES = (
    LibraryOptions(
        r"/transformers/trainer\.py$",
        {
            _CLIPS: f"set max_grad_norm=0 in TrainingArguments, if gradients need no clipping ({CHANGES_TRAINING})",
            _SAVES: "save less often: raise save_steps in TrainingArguments, or set save_strategy='epoch'",
            _LOGS: "log less often: raise logging_steps in TrainingArguments",
            _ANY: "pass the Trainer fewer callbacks, or raise logging_steps and save_steps in TrainingArguments",
        },
        accumulate="raise gradient_accumulation_steps in TrainingArguments",
        compile="set torch_compile=True, torch_compile_mode='reduce-overhead' in TrainingArguments: " + _ONE_LAUNCH,
        batch="make per_device_train_batch_size",
        autocast=" (fp16=False, bf16=False in TrainingArguments)",
        workers="dataloader_num_workers",
        pin="dataloader_pin_memory=True in TrainingArguments",
        fused='optim="adamw_torch_fused"',
        evaluate=": raise eval_steps in TrainingArguments",
    ),
    LibraryOptions(
        r"/(?:lightning|pytorch_lightning)/(?:\w+/)*loops/",
        {
            _CLIPS: f"leave out gradient_clip_val of the Trainer, if gradients need no clipping ({CHANGES_TRAINING})",
            _SAVES: "save less often: raise every_n_train_steps of ModelCheckpoint, or save once an epoch",
            _LOGS: "log less often: raise log_every_n_steps of the Trainer, or call self.log() in fewer steps",
            _ANY: "override fewer hooks, or pass the Trainer fewer callbacks and enable_progress_bar=False",
        },
        accumulate="raise accumulate_grad_batches of the Trainer",
        compile=f"call torch.compile(model, mode='reduce-overhead') before trainer.fit(): {_ONE_LAUNCH}",
        batch="make batch_size of the DataLoader",
        autocast=" (precision='32-true' in the Trainer)",
        evaluate=": raise val_check_interval or check_val_every_n_epoch of the Trainer, or set limit_val_batches",
    ),
    LibraryOptions(
        r"/keras/src/backend/torch/trainer\.py$",
        {
            _SAVES: "save less often: save_freq of ModelCheckpoint",
            # starts a thread in each call of fit()
            "_async_dispatch": "call model.fit() for many batches at once, or model.train_on_batch() for each",
            _CONVERTS: "give model.fit() batches of tensors, from a DataLoader or PyDataset: Keras converts all others",
            _ANY: "pass model.compile() fewer metrics, and model.fit() fewer callbacks",
        },
        accumulate="pass gradient_accumulation_steps to the optimizer",
        compile="pass jit_compile=True to model.compile(): fewer launches",
        batch="make batch_size of model.fit()",
        autocast=" (keras.config.set_dtype_policy('float32'))",
        evaluate=": raise validation_freq of model.fit()",
    ),
    LibraryOptions(
        r"/skorch/net\.py$",
        {_ANY: "give the net fewer callbacks (callbacks__NAME=None leaves one out)"},
        compile=f"pass compile=True, compile__mode='reduce-overhead' to the net: {_ONE_LAUNCH}",
        batch="make batch_size of the net",
        workers="iterator_train__num_workers",
        pin="iterator_train__pin_memory=True",
        fused="optimizer__fused=True",
    ),
    LibraryOptions(
        r"/ignite/engine/engine\.py$",
        {_ANY: "attach the handler to fewer events: Events.ITERATION_COMPLETED(every=n), or EPOCH_COMPLETED"},
        accumulate="raise gradient_accumulation_steps of create_supervised_trainer()",
    ),
    LibraryOptions(
        r"/stable_baselines3/common/(?:base_class|o\w+_policy_algorithm)\.py$",
        {
            _SAVES: "save less often: raise save_freq of CheckpointCallback",
            _LOGS: "log less often: raise log_interval of learn()",
            _ANY: "pass learn() fewer callbacks, or each within EveryNTimesteps",
        },
        batch="make batch_size of the algorithm",
        environments="make_vec_env() with n_envs and vec_env_cls=SubprocVecEnv",
        evaluate=": raise eval_freq of EvalCallback",
    ),
    LibraryOptions(
        r"/accelerate/(?:accelerator|data_loader|optimizer)\.py$",
        accumulate="raise gradient_accumulation_steps of the Accelerator, with each step under accumulate()",
        autocast=" (mixed_precision='no' in the Accelerator)",
    ),
)


def options(evidence: Evidence) -> LibraryOptions:
    """The options of the library that owns the loop; if none does, those of the user's own loop."""
    return _loop_options(evidence.gpu.launching.files)


@lru_cache(8)  # all rules ask for the same one
def _loop_options(files: frozenset[str]) -> LibraryOptions:
    libraries = (each for each in LIBRARIES if any(map(re.compile(each.loop).search, files)))
    return next(libraries, LibraryOptions())


def advice_on_debugging(rule: str, evidence: Evidence) -> str | None:
    """The fix for a debugging setting that slows down the work that this rule finds; None if none is on."""
    settings = evidence.process.debug_settings
    return next((advice for setting, advice in _ADVICE[rule] if setting in settings), None)


def even_work(evidence: Evidence) -> str:
    """The fix for ranks that have more work than others in some steps."""
    return (
        "give all ranks equal work in each step: bucket or pack batches by length, with equal numbers of items, or"
        f" {options(evidence).accumulate}"
    )


_MODEL = "compute_bound_cpu compute_bound launch_bound"
#: By a part of the warning's text: the advice, and the rules whose findings it concerns, whatever their line.
WARNING_ROWS = {
    "Using a target size": (
        "give the output and the target of the loss the same shape: now each element is compared with every other",
        _MODEL,
    ),
    "Creating a tensor from a list of numpy": (
        "stack the arrays (np.stack()) before making a tensor of them",
        "input_bound",
    ),
    "To copy construct from a tensor": ("call clone() on the tensor instead of torch.tensor()", "input_bound"),
    "This DataLoader will create": ("lower num_workers to the number of cores", "cpu_oversubscribed"),
    "TensorFloat32 tensor cores": ("call torch.set_float32_matmul_precision('high')", "compute_bound"),
    "Torch was not compiled with flash attention": ("use a build of torch with flash attention", _MODEL),
    "RNN module weights are not part of": ("call flatten_parameters() of the recurrent layers", _MODEL),
    "There is a performance drop because": ("keep the operation that it names out of torch.vmap", _MODEL),
    "None of the inputs have requires_grad=True": ("pass use_reentrant=False to checkpoint()", _MODEL),
    "does not support code generation for complex": (
        "keep complex numbers out of torch.compile, or hold their real and imaginary parts in real tensors",
        f"{_MODEL} recompiles",
    ),
    "DataFrame is highly fragmented": ("join the columns at once: pd.concat(axis=1)", "input_bound side_work"),
}


def advice_on_warnings(evidence: Evidence) -> Iterator[tuple[str, list[str], Place]]:
    """For each warning of the process: the advice, the rules that it concerns, and its line."""
    for warned in evidence.process.warnings:
        if warned.text in WARNING_ROWS:
            action, rules = WARNING_ROWS[warned.text]
            place = Place(warned.file, warned.line, "")
            where = f" at {code_place(place)}" if warned.file else ""  # a cell of a notebook has no file
            yield f"{action} (see the warning{where})", rules.split(), place


def with_warnings(findings: Sequence[Finding], evidence: Evidence) -> list[Finding]:
    """The findings; each warning's advice is added to the first finding at its line, or that it concerns."""
    found = list(findings)
    for action, rules, place in advice_on_warnings(evidence):
        if any(fix.action == action for each in found for fix in each.fixes):
            continue
        of_line = (n for n, each in enumerate(found) if any(line[:2] == place[:2] for line in each.where))
        first = next(of_line, next((n for n, each in enumerate(found) if each.rule in rules), None))
        if first is not None:
            found[first] = replace(found[first], fixes=(*found[first].fixes, Fix(action)))
    return found
