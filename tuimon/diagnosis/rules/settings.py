"""The rule about settings in force that slow the steps down: precision, tracers, checks, anomaly detection."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from tuimon.diagnosis.claims import is_sure
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import WARNING_GAIN, Change, Finding, Fix, verdict
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import SETTINGS, STEPS, Rule
from tuimon.diagnosis.rules.advice import ANOMALY
from tuimon.diagnosis.step_model.edits import TAKES_ERROR
from tuimon.diagnosis.step_model.measured import host_model, without_if_sure
from tuimon.diagnosis.threshold import MIN_SAMPLES, REPORTED, Threshold
from tuimon.diagnosis.words import percent
from tuimon.library_code import is_tracer
from tuimon.records import Place
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node

AVX512_TAKES = Threshold(
    0.45,
    "part of the time of forward and backward in bfloat16, on a CPU with AVX-512 but without products of bfloat16, that"
    " float32 takes",
    "measured in bench/cpu_settings.py: 0.41 to 0.62",
)
AVX2_TAKES = Threshold(
    0.15,
    "the same on a CPU without AVX-512, and in float16 on one without products of that",
    "measured in bench/cpu_settings.py: 0.08 to 0.20, in float16 0.07 to 0.18",
)
FLOAT64_TAKES = Threshold(
    0.50,
    "part of the time of forward, backward and update in float64 on a CPU that float32 takes",
    "measured in bench/cpu_settings.py: 0.44 to 0.63, but 0.21 of convolutions",
)
TRACED_TAKES = Threshold(
    0.45,
    "part of the time of Python code under a profiler or tracer that it takes without",
    "measured in bench/cpu_settings.py: 0.33 to 0.67 under cProfile, 0.23 to 0.55 under sys.settrace",
)
TRACED_ERROR = Threshold(0.25, "how far off that part may be", "measured in bench/cpu_settings.py")
#: Least part of the work that is left: nothing vanishes whole, and checks still test a flag: our choice.
_LEAST_LEFT = 0.05
#: A line that installs a tracer, with the name of its function: ``sys.settrace(self.trace)``.
_HANDED = re.compile(r"\.set(?:trace|profile)\s*\(\s*(?:\w+\.)*(\w+)")
_BF16_HERE = ("amx", "avx512_bf16")
#: By type whose numbers a CPU has to convert one by one: its instructions, and the part of the time that float32 takes
#: with these. CPUs with AMX have float16.
_EMULATED = {
    "bfloat16": {"avx512": AVX512_TAKES, "avx2": AVX2_TAKES},
    "float16": dict.fromkeys(("avx512_bf16", "avx512", "avx2"), AVX2_TAKES),
}
_MODEL = ("forward", "backward")
_FLOAT32 = "use float32 where its 7 digits are enough: model.float(), and inputs in float32 (numpy makes float64)"


class _Setting(NamedTuple):
    """A setting in force that slows down this share of each step, and the part of it that is left without it."""

    cause: str
    headline: str
    share: float
    action: str
    takes: float = _LEAST_LEFT
    error: float = 0.0  # of ``takes``
    what: Literal["model", "gil"] = "model"
    place: Place | None = None


@partial(
    Rule,
    "A setting slows the steps down",
    needs=(STEPS, SETTINGS),
    causes=("anomaly", "bfloat16", "float16", "float64", "tracer", "validation"),
    contradicts_order=True,
)
def slow_setting(evidence: Evidence) -> Finding | None:
    """Settings in force that slow down the computation, the one whose change gains most first."""
    gpu = evidence.gpu.steps
    if (gpu is None and evidence.gpu.is_used is not False) or not is_sure(evidence, 1.0, early=False):
        return None
    judged = [(setting, _fix(evidence, setting)) for setting in (*_types(evidence), *_sampled(evidence))]
    found = [(setting, fix) for setting, fix in judged if _likely(fix) >= WARNING_GAIN]
    if not found:
        return None
    found = sorted(found, key=lambda each: -_likely(each[1]))
    best = found[0][0]
    return verdict(
        best.headline,
        *(fix for _, fix in found),
        cause=best.cause,
        share=best.share,
        at=best.place,
        evidence={f"{setting.cause}_share": setting.share for setting, _ in found},
    )


def _likely(fix: Fix) -> float:
    """The likely gain; if that is unknown, the most that a fix may gain."""
    return fix.estimated_speedup or (fix.gain.high if fix.gain is not None else 1.0)


def _fix(evidence: Evidence, setting: _Setting) -> Fix:
    """The fix after which the part ``takes``, give or take its error, of this share of the step is left."""
    takes, gpu = max(_LEAST_LEFT, setting.takes), evidence.gpu.steps
    if gpu is not None and setting.cause == "float64":
        fix = Fix(setting.action, changes_training=True)  # the gain depends on the GPU model
        return fix.by_up_to(math.inf) if setting.share >= REPORTED else fix
    if gpu is not None:  # the CPU submits more work sooner
        low, high = Interval.around(setting.share * (1.0 - takes), setting.share * setting.error)
        return without_if_sure(evidence, setting.action, Interval(min(low, gpu.idle.low), min(high, gpu.idle.high)))
    model = host_model(evidence)
    part = Interval.around(setting.share)  # for a tracer: of all that the thread does with the GIL, in any phase
    if setting.what == "model":
        part = model.own_part(part)
    unsure = Interval.around(part.middle, part.middle * setting.error / (1.0 - takes))
    fix = model.fix(setting.action, Change(setting.what, takes), unsure)
    if setting.cause == "anomaly":
        return fix.without_upper_end  # samples do not show how it checks the gradients
    return fix._replace(changes_training=setting.cause == "float64")


def lower_is_faster(evidence: Evidence) -> bool:
    """True if bfloat16 is not in use and the CPU multiplies it by itself."""
    process = evidence.process
    computed = [*process.matmul_dtypes, *process.parameter_dtypes] if process is not None else []
    return process is not None and process.vectors in _BF16_HERE and "bfloat16" not in computed


def _types(evidence: Evidence) -> Iterator[_Setting]:
    """The number types that the process reports and that this CPU or GPU computes with more slowly."""
    process, gpu, share = evidence.process, evidence.gpu.steps, evidence.steps.share_of(*_MODEL)
    if process is None:
        return
    computed = {*process.matmul_dtypes, *process.parameter_dtypes}
    takes = {dtype: by[process.vectors] for dtype, by in _EMULATED.items() if process.vectors in by}
    dtype = next((dtype for dtype in takes if dtype in computed), None)
    if dtype is not None and gpu is None:
        how = "parameters in float32" if dtype in process.parameter_dtypes else "no torch.autocast"
        yield _Setting(
            dtype,
            f"forward and backward take {percent(share)} of each step in {dtype}, which this CPU has no instructions"
            " for",
            share,
            f"compute in float32 on this machine ({how})",
            takes[dtype],
            TAKES_ERROR,
        )
    if process.parameter_dtypes == ["float64"]:
        share = evidence.steps.share_of(*_MODEL, "optimizer") if gpu is None else 1.0 - gpu.idle.high
        at_least = "" if gpu is None else "at least "
        yield _Setting(
            "float64",
            f"the parameters are float64: computing with them takes {at_least}{percent(share)} of each step",
            share,
            _FLOAT32,
            FLOAT64_TAKES,
            TAKES_ERROR,
        )


def _sampled(evidence: Evidence) -> Iterator[_Setting]:
    """Settings that samples show at work: argument checks, notes of stacks, tracers of each call or line of Python.

    A tracer may also be known from the process's report; it slows down code that holds the GIL.
    """
    samples, process, tid = evidence.samples.in_steps, evidence.process, evidence.tid
    for cause, is_it, headline, action in (
        (
            "validation",
            _checks_arguments,
            "torch.distributions checks its arguments for {} of each step",
            "turn off the checks of torch.distributions once the program is right:"
            " torch.distributions.Distribution.set_default_validate_args(False), or validate_args=False",
        ),
        (
            "anomaly",
            _notes_stack,
            "autograd's anomaly detection notes the stack of each operation for {} of each step",
            ANOMALY[1],
        ),
    ):
        checking = samples.where(is_it)
        if checking.total >= MIN_SAMPLES:
            share, hot = checking.total / samples.total, checking.hottest()
            yield _Setting(cause, headline.format(percent(share)), share, action, place=hot and hot.place)
    held = next((row.gil_ratio for row in evidence.threads if row.tid == tid), None)
    tracing = samples.where(_traces(evidence))
    is_on = tracing.total >= MIN_SAMPLES or (process is not None and "tracer" in process.debug_settings)
    if is_on and held is not None:
        hot = tracing.hottest()
        yield _Setting(
            "tracer",
            f"a tracer follows the Python code, which takes {percent(held)} of each step",
            held,
            "train without the profiler, debugger or coverage measurement that sees each call or line of Python",
            TRACED_TAKES,
            TRACED_ERROR,
            "gil",
            hot and hot.place,
        )


def without_settings(samples: Samples, evidence: Evidence) -> Samples:
    """The samples outside the work that a setting adds to the training's own."""
    traces = _traces(evidence)
    return samples.where(lambda node: not (_checks_arguments(node) or _notes_stack(node) or traces(node)))


def _traces(evidence: Evidence) -> Callable[[Node], bool]:
    """Tells whether a sample is in a tracer: a library's, or a function that the program passes to ``sys.settrace``."""
    handed = (_HANDED.search(place.source) for place in evidence.here.set_at("tracer"))
    names = {match[1] for match in handed if match is not None}
    return lambda node: any(
        (frame.user and frame.function.rpartition(".")[2] in names) or is_tracer(frame.file, frame.function)
        for frame in node.frames
    )


def _notes_stack(node: Node) -> bool:
    """True if autograd notes a stack: apart from compilers, only autograd calls this function of torch.fx.

    See ``PyAnomalyMetadata::store_stack`` in torch's ``csrc/autograd/python_anomaly_mode.cpp``.
    """
    notes = any(
        frame.function == "format_stack" and frame.file.endswith("torch/fx/traceback.py") for frame in node.frames
    )
    return notes and not node.has("compile")


def _checks_arguments(node: Node) -> bool:
    leaf = node.frame
    if leaf.file.endswith("torch/distributions/constraints.py"):
        return True
    return leaf.file.endswith("torch/distributions/distribution.py") and leaf.function in (
        "__init__",
        "_validate_sample",
    )
