"""Progress, goodput and memory in words, for title, headless lines and reports: what is not known is left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from tuimon.records import MemoryHistory, MemoryLine
from tuimon.session.goodput import PARTS, Goodput, Part
from tuimon.session.loaders import LoaderRow, LoaderWorkerRow
from tuimon.session.progress import RunProgress
from tuimon.session.session import SessionView
from tuimon.torch_code import makes_batch
from tuimon.views.format import count, duration, flops, ms, number, percent, place, plain, rate, size

if TYPE_CHECKING:
    from tuimon.views.report_types import StepsJson

#: From this share on, padding is named beside the rate of tokens.
_PADDING = 0.01
#: Parts of a smaller share are left out of the line.
_SHOWN = 0.005
_NAMES: dict[Part, str] = {
    "network": "calls over the network",
    "program": "waiting for other programs",
    "prompt": "at a prompt",
    "outside": "outside the loop or stopped",
    "after": "after the last step",
}

#: One part each; the other parts are grey.
_COLOURS: dict[Part, str] = {
    "training": "forward",
    "compile": "backward",
    "evaluation": "eval",
    "checkpoint": "optimizer",
    "hang": "data",
}
#: Lines of the short form.
_FEW = 3


def with_work(now: SessionView, pid: int, loaders: Iterable[LoaderRow]) -> list[LoaderRow]:
    """The loaders of a process with the hottest line of each worker, and its CPU, 1.0 for one core."""

    def of(worker: LoaderWorkerRow) -> LoaderWorkerRow:
        threads = now.process_threads(worker.pid) if worker.pid != pid else None
        cpu_ratio = threads.cpu_ratio if threads is not None else None
        samples = now.samples(worker.pid)  # the training process may make its batches itself
        own = (
            samples.inside(lambda frame: makes_batch(frame.file, frame.function))
            if worker.pid == pid
            else samples.without_imports
        )
        return structs.replace(worker, cpu_ratio=cpu_ratio, hot=next(iter(own.lines()), None))

    return [row._replace(worker_rows=tuple(of(worker) for worker in row.worker_rows)) for row in loaders]


def head_text(history: MemoryHistory) -> str:
    """``5 steps on cpu: 107 kB allocated and not freed, 132 kB at most``."""
    device = plain(history.device)
    if history.trigger == "oom":
        wanted = f"{size(history.wanted_bytes)} could not be allocated on {device}" if history.wanted_bytes else device
        head = f"out of memory: {wanted}; since the first backward pass"
    else:
        head = f"{history.steps} steps on {device}"
    return f"{head}: {size(history.live_bytes)} allocated and not freed, {size(history.most_bytes)} at most"


def line_text(line: MemoryLine) -> str:
    """``train.py:7 log(): 82 kB in 10 blocks, +8.2 kB a step``."""
    where = f"{place(line.file, line.line)} {plain(line.function)}()" if line.file else "a line that is not known"
    blocks = "1 block" if line.blocks == 1 else f"{line.blocks} blocks"
    growth = f", +{size(line.growth_bytes)} a step" if line.growth_bytes else ""
    return f"{where}: {size(line.live_bytes)} in {blocks}{growth}"


def limits_text(history: MemoryHistory) -> list[str]:
    """The limits of the figures."""
    notes = ["the figures leave out what was allocated before the recording"]
    if history.trigger == "asked":
        notes.append("steps are counted from backward to backward; growth is what most steps left behind")
    if history.pause_ms:
        notes.append(f"recording the memory held the training up for {history.pause_ms:.0f} ms")
    return notes


def memory_lines(history: MemoryHistory) -> list[str]:
    """The short form: the head, the largest lines, and those that grow most."""
    growing = sorted((line for line in history.lines if line.growth_bytes), key=lambda line: -(line.growth_bytes or 0))
    shown = dict.fromkeys((*growing[:_FEW], *history.lines[:_FEW]))
    return [head_text(history), *(f"  {line_text(line)}" for line in shown)]


def goodput_text(goodput: Goodput) -> str:
    """``62 % of 3m12s in steps; evaluation 21 %, set-up 12 %, import 5 %``."""
    rest = sorted(((seconds, part) for part, seconds in goodput.parts.items() if part != "training"), reverse=True)
    named = [
        f"{_NAMES.get(part, part)} {percent(seconds / goodput.total_s)}"
        for seconds, part in rest
        if seconds >= _SHOWN * goodput.total_s
    ]
    return f"{percent(goodput.ratio)} of {duration(goodput.total_s)} in steps" + (
        "; " + ", ".join(named) if named else ""
    )


def goodput_bar(goodput: Goodput) -> list[tuple[str, float, str]]:
    """The parts in order for a stacked bar: name, share, and the phase in whose colour it is drawn."""
    parts = ((part, goodput.parts[part] / goodput.total_s) for part in PARTS if part in goodput.parts)
    return [(_NAMES.get(part, part), share, _COLOURS.get(part, "other")) for part, share in parts]


def steps_text(steps: StepsJson) -> str:
    """``600 steps, 10 steps/s, median 99.8 ms, p95 104 ms``."""
    number = f"{count(steps.total)} step{'' if steps.total == 1 else 's'}"
    return f"{number}, {rate(steps.per_second)}, median {ms(steps.median_ms)}, p95 {ms(steps.p95_ms)}"


def position_text(progress: RunProgress) -> str:
    """``step 450 of 1 000``, ``epoch 3 of 10, batch 450 of 1 000``; as the output puts it, if it shows a place."""
    if progress.printed is not None and progress.printed.place:
        return plain(progress.printed.place)
    if progress.step is not None:
        return f"step {count(progress.step)} of {count(progress.steps)}"
    epoch, of = progress.epoch, f" of {count(progress.epochs)}" if progress.epochs is not None else ""
    if epoch is None:
        return ""
    if epoch.given is None:
        return f"{count(epoch.done)}{of} epoch{'' if epoch.done == 1 and not of else 's'} done" if epoch.done else ""
    batch = f"batch {count(epoch.given)}" + (f" of {count(epoch.length)}" if epoch.length is not None else "")
    return f"epoch {count(epoch.done + 1)}{of}, {batch}" if epoch.done is not None else batch


def left_text(progress: RunProgress) -> str:
    """``~3m12s left``, by the pace of the last 30 s; nothing beside a place from the output, which has its own."""
    left, printed = progress.left, progress.printed
    if left is None or (printed is not None and printed.place):
        return ""
    return f"~{duration(left.seconds)} left" + (" in this epoch" if left.of == "epoch" else "")


def rate_texts(progress: RunProgress) -> list[str]:
    """``477 samples/s``, ``61.2k tokens/s``."""
    samples, tokens = progress.samples_per_s, progress.tokens_per_s
    return [
        *([rate(samples, "samples")] if samples is not None else []),
        *([f"{_thousands(tokens)} tokens/s"] if tokens is not None else []),
    ]


def flops_text(progress: RunProgress) -> str:
    """``38 % MFU``; without the GPU's peak ``1.25 TFLOPS``; nothing before a trace."""
    if progress.mfu_ratio is not None:
        return f"{percent(progress.mfu_ratio)} MFU"
    return f"{flops(progress.flops_per_s)}S" if progress.flops_per_s is not None else ""


def loss_text(progress: RunProgress) -> str:
    """``loss 0.31``, as printed."""
    return f"loss {plain(progress.printed.loss)}" if progress.printed is not None and progress.printed.loss else ""


def padding_text(progress: RunProgress) -> str:
    """``18 % padding``, of the positions in batches of text."""
    ratio = progress.padding_ratio
    return f"{percent(ratio)} padding" if ratio is not None and ratio >= _PADDING else ""


def _thousands(value: float) -> str:
    for unit, many in (("M", 1e6), ("k", 1e3)):
        if value >= 9.995 * many:
            return f"{number(value / many)}{unit}"
    return number(value)


def progress_text(progress: RunProgress) -> str:
    """All that is known of it; empty where nothing is."""
    rates = rate_texts(progress)
    padding = padding_text(progress)
    if padding and progress.tokens_per_s is not None:
        rates[-1] += f" ({padding})"
    if rates and progress.ranks > 1:
        rates[-1] += f" on {count(progress.ranks)} ranks"
    parts = [position_text(progress), left_text(progress), *rates, flops_text(progress), loss_text(progress)]
    return ", ".join(filter(None, parts))
