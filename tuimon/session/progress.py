"""The progress of a run, with samples and tokens a second, from its loaders, its program and its output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, field, structs

from tuimon.records import Gpu, Process, TracedFlops
from tuimon.session.loaders import EpochRow, LoaderRow
from tuimon.session.ranks import training_of
from tuimon.session.series import sum_of_all
from tuimon.session.session import ProcessView, Session
from tuimon.threshold import MOST

LeftOf = Literal["run", "epoch"]
#: The time left in a place as printed, which says nothing once the run has ended.
_TIME_LEFT = re.compile(r", [\d:]+ left$")


class Progress(Struct, frozen=True, omit_defaults=True):
    """The progress of a process, as its loader, its Trainer or its output shows it; unknown fields are absent.

    Rates cover the whole run, or the last 30 s if it has not ended.
    """

    samples_per_s: float | None = field(name="samples_per_second", default=None)  # of all ``ranks``
    tokens_per_s: float | None = field(name="tokens_per_second", default=None)  # likewise; without known padding
    ranks: int = 1  # ranks that load data
    flops_per_s: float | None = field(name="flops_per_second", default=None)  # of one rank, by its latest trace
    mfu_ratio: float | None = field(name="mfu", default=None)  # FLOPS / the GPU's dense peak
    padding_ratio: float | None = field(name="padding", default=None)  # share of padding in batches of text
    step: int | None = None
    steps: int | None = None  # all steps that the Trainer plans
    epochs_done: int | None = None
    epochs: int | None = None
    batch: int | None = None  # in the current epoch
    batches: int | None = None  # in an epoch
    left_s: float | None = None  # time left at the present pace
    left_of: LeftOf | None = None  # True if ``left_s`` is that of the run or of the epoch
    loss: str | None = None  # as printed
    printed: str | None = None  # the place in the run, as printed


def run_progress(own: ProcessView) -> Progress:
    """The progress of a process, with samples and tokens of all ranks of its training."""
    # of a pipeline, for instance, only the first rank loads data
    ranks = [rank for rank in training_of(own) if own.view.session.exit or not rank.process.ended] or [own]
    rates = [known for rank in ranks if (known := _rates_in(rank)) != (None, None)]
    samples, tokens = (
        [rate for rate in each if rate is not None] for each in zip(*rates or [(None, None)], strict=True)
    )
    return structs.replace(
        progress_of(own), samples_per_s=sum_of_all(samples), tokens_per_s=sum_of_all(tokens), ranks=len(rates) or 1
    )


def progress_of(own: ProcessView) -> Progress:
    session, steps, loaders = own.view.session, own.steps, _training_loaders(own)
    (samples_per_s, tokens_per_s), (flops_per_s, mfu_ratio) = _rates_in(own), _flops_rate(own)
    planned, epochs, place = own.process.planned_steps, own.process.planned_epochs, session.printed.place
    done = steps.total if steps is not None and planned is not None and steps.total <= planned else None
    epoch, batches = _epoch(session, loaders), loaders[0].batches if len(loaders) == 1 else None
    padding = batches.padding if batches is not None else None
    left_s: float | None = None
    left_of: LeftOf | None = None
    if session.exit is None and done is not None and planned is not None and steps is not None and steps.per_second:
        left_s, left_of = (planned - done) / steps.per_second, "run"
    elif session.exit is None and epoch.given is not None:
        left_s, left_of = _time_left(epoch, epochs, loaders[0].fetches * _rate_of_all_steps(own))
    return Progress(
        samples_per_s=samples_per_s,
        tokens_per_s=tokens_per_s,
        flops_per_s=flops_per_s,
        mfu_ratio=mfu_ratio,
        padding_ratio=padding / batches.tokens if batches and batches.tokens and padding is not None else None,
        step=done,
        steps=planned if done is not None else None,
        epochs_done=epoch.done,
        epochs=epochs if epoch.done is not None and epoch.done <= (epochs or 0) else None,
        batch=epoch.given,
        batches=epoch.length,
        left_s=left_s,
        left_of=left_of,
        loss=session.printed.loss or None,
        printed=(_TIME_LEFT.sub("", place) if session.exit is not None else place) or None,
    )


def _rates_in(own: ProcessView) -> tuple[float | None, float | None]:
    """Samples and tokens a second of one process.

    As the program passes them; otherwise from all batches of its training loaders. None if some are unknown.
    """
    totals, a_second = own.totals, _rate_of_all_steps(own)
    a_step = (totals.sums.per_second or 0.0) / totals.sized if totals.sized else 0.0
    samples: list[float | None] = []
    tokens: list[float | None] = []
    for loader in _training_loaders(own):
        batches, fetches_per_s = loader.batches, loader.fetches * a_second
        size, text = batches.mean_samples if batches is not None else None, None
        if loader.facts.batch_size:
            size = loader.facts.batch_size
        if batches is not None and batches.tokens is not None:
            text = (batches.tokens - (batches.padding or 0)) / batches.count
        samples.append(size * fetches_per_s if size and fetches_per_s else None)
        tokens.append(text * fetches_per_s if text is not None and fetches_per_s else None)
    return totals.samples * a_step or sum_of_all(samples), totals.tokens * a_step or sum_of_all(tokens)


def _rate_of_all_steps(own: ProcessView) -> float:
    """The part of all its steps so far that a process makes in a second.

    Batches of a step are counted over the whole run: the pace of the loader alone leaves out evaluation.
    """
    total, per_second = own.stats.total, own.totals.sums.per_second
    return per_second / total if total and per_second else 0.0


def _training_loaders(own: ProcessView) -> list[LoaderRow]:
    return [each for each in own.loaders if each.latest.role == "train" and each.fetches]


def _epoch(session: Session, loaders: list[LoaderRow]) -> EpochRow:
    """The epoch of the only training loader, unknown with several; earlier epochs are unknown after an attach."""
    epoch = loaders[0].epoch if len(loaders) == 1 else EpochRow()
    if (epoch.given or 0) > (epoch.length or 0):  # its dataset has grown
        epoch = epoch._replace(length=None)
    return epoch._replace(done=None) if session.is_attached else epoch


def _time_left(epoch: EpochRow, epochs: int | None, batches_per_s: float) -> tuple[float | None, LeftOf | None]:
    if epoch.given is None or epoch.length is None or not batches_per_s:
        return None, None
    if epochs is not None and epoch.done is not None and epoch.done < epochs:
        return ((epochs - epoch.done) * epoch.length - epoch.given) / batches_per_s, "run"
    return (epoch.length - epoch.given) / batches_per_s, "epoch"


#: Dense peaks in TFLOPS by the driver's name of the GPU, from NVIDIA's data sheets (half of those given "with
#: sparsity"); of GeForce with sums in float32, as torch multiplies, from the whitepapers of Ampere GA102 and Ada AD102.
_PEAKS: dict[str, dict[str, float]] = {
    r"A100[- ].*": {"float32": 19.5, "tf32": 156, "float16": 312, "bfloat16": 312},
    r"A10": {"float32": 31.2, "tf32": 62.5, "float16": 125, "bfloat16": 125},
    r"H100 PCIe": {"float32": 51, "tf32": 378, "float16": 756, "bfloat16": 756, "float8": 1513},
    r"H100 80GB HBM3|H200": {"float32": 67, "tf32": 494.5, "float16": 989.5, "bfloat16": 989.5, "float8": 1979},
    r"B200": {"float32": 75, "tf32": 1125, "float16": 2250, "bfloat16": 2250, "float8": 4500},
    r"L4": {"float32": 30.3, "tf32": 60, "float16": 121, "bfloat16": 121, "float8": 242.5},
    r"L40S": {"float32": 91.6, "tf32": 183, "float16": 362, "bfloat16": 362, "float8": 733},
    r"T4": {"float32": 8.1, "float16": 65},
    r"V100-SXM2.*": {"float32": 15.7, "float16": 125},
    r"V100-PCIE.*": {"float32": 14, "float16": 112},
    r"RTX 3090": {"float32": 35.6, "tf32": 35.6, "float16": 71, "bfloat16": 71},
    r"RTX 4090": {"float32": 82.6, "tf32": 82.6, "float16": 165.2, "bfloat16": 165.2, "float8": 330.3},
}


def _flops_rate(own: ProcessView) -> tuple[float | None, float | None]:
    """The operations of a process in a second, and as a share of its GPUs' peak.

    They are those of its latest trace that counts them all, at the pace of its steps. None if no trace counts them, or
    its pace or the peak of its GPUs is unknown.

    Example: 1.2e12 operations of bfloat16 in a step, 400 steps a second: 48 % of the 989.5 TFLOPS of an H100.
    """
    rows, per_s = _traced_flops(own)
    if not per_s:
        return None, None
    seconds = _seconds_at_peak(rows, own.process, _gpus_of(own))
    return sum(row.flops for row in rows) * per_s, None if seconds is None else seconds * per_s


def saved_by_lower_precision(own: ProcessView) -> float:
    """The least share of its time that a process saves in traced products of full float32; 0 if that is unknown.

    They reach at most their peak now, and then at least half of that of TF32, or of float16 on a GPU without TF32.
    """
    (rows, per_s), gpus = _traced_flops(own), _gpus_of(own)
    peaks = dict(_peaks(gpus[0])) if gpus else {}
    kinds = [row for row in rows if _precision(row, own.process, has_tf32="tf32" in peaks) == "float32"]
    now_s = _seconds_at_peak(kinds, own.process, gpus)
    if not per_s or not now_s:
        return 0.0
    return max(0.0, now_s * per_s * (1.0 - peaks["float32"] / (MOST * peaks.get("tf32", peaks["float16"]))))


def _traced_flops(own: ProcessView) -> tuple[Sequence[TracedFlops], float | None]:
    """The operations of all steps in the latest trace that counts them, and how often a second they are made."""
    traces = (each for each in reversed(own.view.session.traces) if each.pid == own.pid and each.flops and each.steps)
    trace, steps = next(traces, None), own.steps
    if trace is None or trace.flops is None or steps is None or steps.per_second is None:
        return (), None
    return trace.flops, steps.per_second / trace.steps


def _gpus_of(own: ProcessView) -> Sequence[Gpu]:
    """The GPUs that a process uses; empty unless all of them are known."""
    devices = [device.latest for device in own.view.session.nodes.of(own.node).devices.values()]
    gpus = [gpu for gpu in devices if own.process.uses(gpu) or own.pid in gpu.pids]  # as the driver lists them
    return gpus if sum(map(own.process.uses, gpus)) == len(own.process.gpu_uuids) else ()


def _seconds_at_peak(rows: Iterable[TracedFlops], process: Process, gpus: Iterable[Gpu]) -> float | None:
    """How long GPUs of one kind take for these operations at their peak; None if it is unknown."""
    peaks = [dict(_peaks(gpu)) for gpu in gpus]
    if not peaks or any(each != peaks[0] for each in peaks):
        return None
    seconds = 0.0
    for row in rows:
        peak = peaks[0].get(_precision(row, process, has_tf32="tf32" in peaks[0]))
        if peak is None:
            return None
        seconds += row.flops / (peak * 1e12 * len(peaks))
    return seconds


def _peaks(gpu: Gpu) -> dict[str, float]:
    """The peaks of a GPU by type; empty for an unknown kind of GPU, or a part of one."""
    if gpu.parent_uuid is not None:
        return {}
    name = re.sub(r"^(?:NVIDIA |Tesla |GeForce )+", "", gpu.name)
    return next((peaks for pattern, peaks in _PEAKS.items() if re.fullmatch(pattern, name)), {})


def _precision(row: TracedFlops, process: Process, *, has_tf32: bool) -> str:
    """The type that the GPU multiplies in; "" if torch's setting is unknown."""
    if row.dtype != "float32" or not has_tf32:
        return row.dtype
    by_cudnn = row.kind in ("convolution", "recurrent")
    rounds = process.cudnn_tf32 if by_cudnn else process.tf32
    return "" if rounds is None else "tf32" if rounds else "float32"
