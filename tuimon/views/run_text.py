"""A run as text, for all views: its state, its progress, its time by part, its standstills, memory and traces.

Unknown facts are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tuimon.node_ids import own_id
from tuimon.records import Exit, MemoryHistory, Node, TracedFlops, TraceTaken
from tuimon.session.gpu_time import GpuTimeRow
from tuimon.session.gpus import GpuRow
from tuimon.session.progress import Progress
from tuimon.session.sampling import Sampling
from tuimon.session.session import Session
from tuimon.session.standstills import PastStandstill, group_text, groups_text, rank_list, standing_groups
from tuimon.session.state import OVER, RunState, TimePart, Unseen
from tuimon.session.steps import StepSummary
from tuimon.text import at, code_place, function_text, kernel_name
from tuimon.threshold import TINY
from tuimon.views.format import (
    ABSENT,
    LISTED,
    NAMED,
    NOTHING,
    count,
    duration,
    flops,
    ms,
    ms_range,
    number,
    percent,
    percent_range,
    phase_name,
    plain,
    rate,
    says_nothing,
    shorten,
    size,
    spread_text,
)

if TYPE_CHECKING:
    from tuimon.views.report_types import GoodputJson, GoodputPart, NodeJson, Phase, RunJson, StateJson

STATES: dict[str, str] = {
    "starting": "starting",
    "unseen": "no step seen",
    "waiting": "waiting for its processes",
    "ended": "ended",
    "training": "training",
    "step_open": "step running",
    "between_steps": "no step",
}


def state_text(state: RunState) -> str:
    """``starting for 14s: importing transformers for 12s``; of a run without a step ``ended after 14s: mostly ...``.

    The activity is known for windows of some seconds: one window may hold the end of an import and a short training.
    """
    since = "after" if state.name == "ended" else "for"
    head = [f"{since} {duration(state.for_s)}"] if state.for_s is not None else []
    if (state.backwards or 0) > 1:
        head.append(f"{state.backwards} backward passes")
    place = at(state.place) if state.place is not None else ""
    joined = ", at " if state.doing == OVER else " at "
    inside = joined.join(filter(None, (plain(state.doing or ""), place)))
    if inside and (state.doing_for_s or 0.0) >= 0.05:  # less would be shown as 0.0s
        so_long = duration(state.doing_for_s)
        if state.name == "ended":
            inside = f"mostly {inside} in its last {so_long}"
        elif so_long != duration(state.for_s):
            inside += f" for {so_long}"
    return " ".join(filter(None, (STATES[state.name], ": ".join(filter(None, (", ".join(head), inside))))))


def last_state_text(state: StateJson) -> str:
    """The state for a report without a step: ``It ended after 14s: mostly importing transformers in its last 12s.``

    A log that goes on ends with ``At the end: starting for 14s.``
    """
    return f"{'It' if state.name == 'ended' else 'At the end:'} {state.text}."


def ended_text(end: Exit | RunJson) -> str:
    """``ended with exit code 1 at main() train.py:12: KeyError: 1``, with the exception that ended a run, if known."""
    return ": ".join(filter(None, (how_ended(end), plain(end.last_line or ""))))


def how_ended(end: Exit | RunJson, *, with_place: bool = True) -> str:
    """``ended with exit code 1 at main() train.py:12``, without the exception that was raised there."""
    if end.signal:
        how = f"killed by {plain(end.signal)}"
    elif end.exit_code is not None:
        how = f"ended with exit code {end.exit_code}"
    else:
        how = "ended by an error" if end.has_failed else "the process has ended"
    return how + (f" at {at(end.raised_at)}" if with_place and end.raised_at is not None else "")


#: Modules that launch another one.
_LAUNCHERS = ("torch.distributed.", "accelerate.commands.", "deepspeed.")


def started_program(command: Sequence[str]) -> str:
    """The script or module that was started, by whatever launcher: ``train.py``, ``pkg.train``; else empty."""
    script = next((word for word in command if word.endswith(".py")), None)
    modules = [name for flag, name in pairwise(command) if flag in ("-m", "--module")]
    module = next((name for name in modules if not name.startswith(_LAUNCHERS)), next(iter(modules), None))
    return plain(os.path.basename(script or module or (command[0] if command else "")))


def survivors_text(pids: Sequence[int]) -> str:
    """``still running: 7, 8 (tuimon attach 7)``: the processes that a run left; empty if it left none."""
    shown = ", ".join(str(own_id(pid)) for pid in pids[:8]) + " …" * (len(pids) > 8)
    return f"still running: {shown} (tuimon attach {own_id(pids[0])})" if pids else ""


#: Advice for a script that runs in the Python of PATH instead of its environment's.
_NAME_ITS_PYTHON = "is it in the script's environment? tuimon run ENV/bin/python train.py"


def end_tip(end: Exit, *, before_torch: bool) -> str | None:
    """Advice after such an end of a run; None if there is none.

    Headless, the output is not read: an exception raised before torch is imported, and tuimon's hooks with it, shows
    only as exit code 1.
    """
    if end.last_line:
        return _NAME_ITS_PYTHON if end.last_line.startswith("ModuleNotFoundError: ") else None
    return f"if a module is missing, {_NAME_ITS_PYTHON}" if end.exit_code == 1 and before_torch else None


def unseen_text(unseen: Unseen) -> str:
    """``process 7 (python train.py) uses 3.9 cores and a GPU, but no steps were seen: started with -I ...``."""
    uses = [f"{number(unseen.cores)} cores"] if unseen.cores is not None else []
    uses += ["a GPU"] if unseen.on_gpu else []
    short = shorten(plain(unseen.command), 60)
    used = " and ".join(uses) or "CPU"
    return f"process {own_id(unseen.pid)} ({short}) uses {used}, but {unseen_reason(unseen)}"


def unseen_reason(unseen: Unseen) -> str:
    """``no steps were seen: started with -I or -E ...``, for a place that already names its process."""
    return f"no steps were seen: {plain(unseen.reason)}"


def nodes_text(nodes: Iterable[Node | NodeJson]) -> str:
    """The nodes that have failed, or are silent while others write: ``node007 silent for 28s``; else empty."""
    known = list(nodes)
    silent = [node for node in known if node.state in ("late", "stopped")]
    failed = [node for node in known if node.state == "ended" and node.exit_code]
    parts = []
    if silent:
        longest = duration(max(node.behind_s or 0.0 for node in silent))
        parts.append(f"{_nodes_named(silent, len(known))} silent for {longest}")
    if failed and len(failed) < len(known):
        parts.append(f"{_nodes_named(failed, len(known))} failed")
    return ", ".join(parts)


def _nodes_named(those: Sequence[Node | NodeJson], known: int) -> str:
    return plain(those[0].host) if len(those) == 1 else f"{len(those)} of {known} nodes"


def sampling_text(sampling: Sampling) -> str:
    """The known figures; failures only if there were any."""
    parts = ["in-process"] if sampling.in_process else []
    if sampling.rate_hz is not None:
        parts.append(f"{sampling.rate_hz:.{0 if sampling.rate_hz >= 9.95 else 1}f} Hz")
    if sampling.coverage_ratio is not None:
        parts.append(f"{percent(sampling.coverage_ratio)} covered")
    if sampling.failed:
        parts.append(f"{sampling.failed} failed")
    if sampling.folded:
        parts.append(f"{sampling.folded} samples of rare stacks left out")
    if sampling.lost:
        parts.append("1 window lost" if sampling.lost == 1 else f"{sampling.lost} windows lost")
    if sampling.cpu_ratio is not None:
        parts.append(f"{percent(sampling.cpu_ratio, 1)} cpu")
    return " · ".join(parts)


def standstill_head(past: PastStandstill, session: Session) -> str:
    """``nothing moved for 41s, from 1m12s on, after step 340``; one that goes on counts up to the latest record."""
    until_s = past.ended_s if past.ended_s is not None else session.now_s
    step = f", after step {count(past.step)}" if past.step is not None else ""
    since = duration(past.since_s - session.start_s)
    return f"nothing moved for {duration(until_s - past.since_s)}, from {since} on{step}"


def standstill_line(past: PastStandstill, session: Session) -> str:
    """``nothing moved for 41s, ...: rank 3 in open() data.py:40, 7 ranks in all_reduce() train.py:50``."""
    stands = "; ".join([*(one.text for one in past.stuck), groups_text(standing_groups(past.taken), NAMED)])
    return f"{standstill_head(past, session)}: {stands}"


def list_lines(past: PastStandstill) -> list[str]:
    """The stacks of a standstill, a line for each group with its ranks and its code; idle groups are left out."""
    groups = [group for group in standing_groups(past.taken) if group.kind != "idle"]
    lines = [f"flight recorder: {one.text}" for one in past.stuck]
    lines.append(f"all stacks, taken {past.taken.quiet_s:.0f} s after the last progress:")
    for group in groups[:LISTED]:
        source = f": {plain(group.place.source).strip()}" if group.place is not None and group.place.source else ""
        is_named = group.role != "rank" or len(group.ranks) < 2  # the text "4 ranks" names none of them
        lines.append(f"  {group_text(group)}{'' if is_named else f' (ranks {rank_list(group.ranks)})'}{source}")
    if len(groups) > LISTED:
        lines.append(f"  and {len(groups) - LISTED} more groups (key S in the full screen)")
    return lines


_PARTS: dict[TimePart, str] = {
    "network": "calls over the network",
    "program": "waiting for other programs",
    "prompt": "at a prompt",
    "outside": "outside the loop or stopped",
    "after": "after the last step",
}

#: Part of the wall time -> the phase in whose colour it is drawn; the other parts are grey.
_COLOURS: dict[TimePart, str] = {
    "training": "forward",
    "compile": "backward",
    "evaluation": "eval",
    "checkpoint": "optimizer",
    "hang": "data",
}


def memory_head(history: MemoryHistory) -> str:
    """``5 steps on cpu: 107 kB allocated and not freed, 132 kB at most``."""
    device = plain(history.device)
    if history.trigger == "oom":
        wanted = f"{size(history.wanted_bytes)} could not be allocated on {device}" if history.wanted_bytes else device
        head = f"out of memory: {wanted}; since the first backward pass"
    else:
        head = f"{history.steps} steps on {device}"
    return f"{head}: {size(history.live_bytes)} allocated and not freed, {size(history.most_bytes)} at most"


def limits_text(history: MemoryHistory) -> list[str]:
    """Allocations that the figures leave out, and the way in which they were measured."""
    notes = ["the figures leave out what was allocated before the recording"]
    if history.trigger == "asked":
        notes.append("steps are counted from backward to backward; growth is what most steps leave allocated")
    if history.pause_ms:
        notes.append(f"recording the memory held the training up for {history.pause_ms:.0f} ms")
    return notes


def memory_lines(history: MemoryHistory) -> list[str]:
    """The short form: the head, the largest lines, and those that grow most.

    ``train.py:7 log(): 82 kB in 10 blocks, +8.2 kB a step``
    """
    growing = sorted((line for line in history.lines if line.growth_bytes), key=lambda line: -(line.growth_bytes or 0))
    shown = dict.fromkeys((*growing[:NAMED], *history.lines[:NAMED]))
    lines = [memory_head(history)]
    for line in shown:
        where = f"{code_place(line)} {function_text(line.function)}" if line.file else "a line that is not known"
        blocks = "1 block" if line.blocks == 1 else f"{line.blocks} blocks"
        growth = f", +{size(line.growth_bytes)} a step" if line.growth_bytes else ""
        lines.append(f"  {where}: {size(line.live_bytes)} in {blocks}{growth}")
    return lines


def goodput_text(seconds: float, parts: Sequence[GoodputPart], *, is_attached: bool = False) -> str:
    """``62 % of 3m12s in steps; evaluation 21 %, set-up 12 %``; after attach ``of 3m12s watched, 62 % in steps``."""
    shares = {part.name: part.share for part in sorted(parts, key=lambda part: -part.share)}
    in_steps, length = percent(shares.pop("training", 0.0)), duration(seconds)
    steps = f"of {length} watched, {in_steps} in steps" if is_attached else f"{in_steps} of {length} in steps"
    named = [f"{_PARTS.get(name, name)} {percent(share)}" for name, share in shares.items() if share >= NOTHING]
    return f"{steps}; {', '.join(named)}" if named else steps


def goodput_bar(goodput: GoodputJson) -> list[tuple[str, float, str]]:
    """The parts for a stacked bar: name, share, and the phase in whose colour it is drawn."""
    return [(_PARTS.get(part.name, part.name), part.share, _COLOURS.get(part.name, "other")) for part in goodput.parts]


def steps_text(steps: StepSummary) -> str:
    """``600 steps, 10 steps/s, median 99.8 ms, p95 104 ms``."""
    number = f"{count(steps.total)} step{'' if steps.total == 1 else 's'}"
    return f"{number}, {rate(steps.per_second)}, median {ms(steps.median_ms)}, p95 {ms(steps.p95_ms)}"


def position_text(progress: Progress) -> str:
    """``step 450 of 1,000``, ``epoch 3 of 10, batch 450 of 1,000``; as the output puts it, if it shows a place."""
    if progress.printed is not None:
        return plain(progress.printed)
    if progress.step is not None:
        return f"step {count(progress.step)} of {count(progress.steps)}"
    done, of = progress.epochs_done, f" of {count(progress.epochs)}" if progress.epochs is not None else ""
    if progress.batch is None:
        return f"{count(done)}{of} epoch{'' if done == 1 and not of else 's'} done" if done else ""
    batch = f"batch {count(progress.batch)}" + (
        f" of {count(progress.batches)}" if progress.batches is not None else ""
    )
    return f"epoch {count(done + 1)}{of}, {batch}" if done is not None else batch


def left_text(progress: Progress) -> str:
    """``~3m12s left``, by the pace of the last 30 s; nothing if the output named a place, which has its own."""
    if progress.left_s is None or progress.printed is not None:
        return ""
    return f"~{duration(progress.left_s)} left" + (" in this epoch" if progress.left_of == "epoch" else "")


def rate_texts(progress: Progress) -> list[str]:
    """``477 samples/s``, ``61.2k tokens/s``."""
    samples, tokens = progress.samples_per_s, progress.tokens_per_s
    texts = [rate(samples, "samples")] if samples is not None else []
    if tokens is not None:
        units = ((1e6, "M"), (1e3, "k"), (1.0, ""))
        many, unit = next((each for each in units if tokens >= 9.995 * each[0]), units[-1])
        texts.append(f"{number(tokens / many)}{unit} tokens/s")
    return texts


def flops_rate_text(progress: Progress) -> str:
    """``38 % MFU``; without the GPU's peak ``1.25 TFLOPS``; nothing before a trace."""
    if progress.mfu_ratio is not None:
        return f"{percent(progress.mfu_ratio)} MFU"
    return f"{flops(progress.flops_per_s)}S" if progress.flops_per_s is not None else ""


def loss_text(progress: Progress) -> str:
    """``loss 0.31``, as printed."""
    return f"loss {plain(progress.loss)}" if progress.loss is not None else ""


def progress_parts(progress: Progress | None) -> list[tuple[int, str]]:
    """The known parts for a line; if that is too long, those with the highest number are left out first."""
    if progress is None:
        return []
    rates = [(6, text) for text in (*rate_texts(progress), flops_rate_text(progress))]
    parts = [(3, position_text(progress)), (4, left_text(progress)), *rates, (5, loss_text(progress))]
    return [part for part in parts if part[1]]


def progress_text(progress: Progress) -> str:
    """All that is known of the run's progress; empty if nothing is."""
    rates, padding = rate_texts(progress), progress.padding_ratio or 0.0
    if padding >= TINY and progress.tokens_per_s is not None:
        rates[-1] += f" ({percent(padding)} padding)"
    if rates and progress.ranks > 1:
        rates[-1] += f" on {count(progress.ranks)} ranks"
    parts = [position_text(progress), left_text(progress), *rates, flops_rate_text(progress), loss_text(progress)]
    return ", ".join(filter(None, parts))


_KINDS = {"product": "matrix products", "convolution": "convolutions", "recurrent": "recurrent layers"}


def traced_gpu_idle(trace: TraceTaken) -> float | None:
    """Share of the time of all GPUs in which they did nothing; None if there are no GPUs."""
    return 1 - trace.gpu_busy_ns / trace.gpu_span_ns if trace.gpu_span_ns and trace.gpu_busy_ns is not None else None


def trace_text(trace: TraceTaken) -> list[str]:
    """The traced steps, then idle time, waits of the CPU, operators and kernels; times are of one step.

    ``Trace of steps 120 to 124 of rank 0: 12.1 ms each (9.80 ms before); then the training paused ...``
    """
    whose = f"process {own_id(trace.pid)}" if trace.rank is None else f"rank {trace.rank}"
    length_ms = (trace.end_s - trace.begin_s) * 1000 / trace.steps if trace.steps else None
    each = f"{ms(length_ms)}{'' if trace.steps == 1 else ' each'}"
    before = f" ({ms(trace.step_ms_before)} before)" if trace.step_ms_before else ""
    held = f"; then the training paused for {ms(trace.pause_ms)} to write it" if trace.pause_ms is not None else ""
    first, last = trace.first_step, (trace.first_step or 0) + trace.steps - 1
    named = f"step {count(first)}" if trace.steps == 1 else f"steps {count(first)} to {count(last)}"
    which = f"{trace.steps} steps" if first is None else named
    ordered = f" ({count(trace.wanted)} were requested)" if trace.wanted > trace.steps else ""
    lines = [f"Trace of {which}{ordered} of {whose}: {each}{before}{held}: {plain(trace.file)}"]
    if (idle := traced_gpu_idle(trace)) is not None:
        busy_ns, own_ns = trace.gpu_busy_ns or 0, trace.gpu_computing_ns
        alone = (busy_ns - own_ns) / (trace.gpu_span_ns or 1) if own_ns is not None else 0.0
        lines.append(f"GPU idle {percent(idle)}{f', only collectives run for {percent(alone)}' if alone else ''}")
    if trace.flops:
        lines.append(flops_text(trace.flops, trace.steps or 1))
    steps = trace.steps or 1
    for sync in trace.syncs[:LISTED]:
        waited, times = ms(sync.total_ns / steps / 1e6), _times(sync.count)
        where = plain(sync.where) or ABSENT
        lines.append(f"the CPU waited {waited} for the GPU in {plain(sync.name)}, {times}, at {where}")
    for kind, rows in (("operator", trace.operators), ("kernel", trace.kernels)):
        for row in rows[:LISTED]:
            gpu = f", its kernels {ms(row.gpu_ns / steps / 1e6)}" if row.gpu_ns else ""
            place = f", at {plain(row.where)}" if row.where else ""
            name = plain(row.name) if kind == "operator" else kernel_name(plain(row.name))
            text = f"{kind} {name}: {ms(row.total_ns / steps / 1e6)}{gpu}, {_times(row.count)}"
            lines.append(f"{text}, {plain(phase_name(row.phase)) or ABSENT}{place}")
    if trace.folded:
        lines.append(f"{count(trace.folded)} more operators, kernels and waits are only in the file")
    return lines


def flops_text(rows: Sequence[TracedFlops], steps: int) -> str:
    """``2.41 TFLOP a step: 96 % matrix products in bfloat16, 4 % attention in bfloat16``."""
    total = sum(row.flops for row in rows)
    parts = ", ".join(
        f"{percent(row.flops / total)} {_KINDS.get(row.kind, plain(row.kind))} in {plain(row.dtype)}" for row in rows
    )
    return f"{flops(total / steps)} a step: {parts}"


def _times(number: int) -> str:
    return "once in all" if number == 1 else f"{count(number)} times in all"


# -- the GPUs, and how long they idle in each phase

#: The counters of a GPU that have a chart, and their names.
CHARTED = {"util_ratio": "util", "sm_ratio": "SM", "tensor_ratio": "tensor", "dram_ratio": "DRAM"}
UNKNOWN = "unknown"


def idle_text(phase: Phase, to: str = "–") -> str | None:
    """The GPU's idle time in a phase, ``6.1–25.4 ms`` or ``unknown``; None if it has no span on the GPU's clock."""
    low_ms, high_ms, span_ms = phase.gpu_idle_ms_low, phase.gpu_idle_ms_high, phase.gpu_ms_per_step
    if low_ms is None or high_ms is None or not span_ms:
        return None
    return UNKNOWN if says_nothing(low_ms, high_ms, span_ms) else ms_range(low_ms, high_ms, to)


def idle_share_text(times: GpuTimeRow) -> str:
    """The GPU's idle share of its time in steps, at least and at most: ``31–44 %``, or ``unknown``."""
    return UNKNOWN if says_nothing(*times.idle) else percent_range(*times.idle)


def gpu_text(gpus: Sequence[GpuRow]) -> str:
    """``GPU 97 % · tensor 12 %`` of the GPUs that the run uses, or of all if these are unknown; empty without figures.

    If a GPU is cut into MIG instances, only the instances count.
    """
    used = [gpu for gpu in [gpu for gpu in gpus if gpu.used_by_run] or gpus if not gpu.is_divided]
    fresh = [gpu for gpu in used if not gpu.is_old]
    busy = spread_text(percent(getattr(gpu.figures, gpu.busy_counter)) for gpu in fresh)
    tensor = spread_text(percent(gpu.figures.tensor_ratio) for gpu in fresh)
    if busy == ABSENT:
        return ""
    name = f"{len(used)} GPUs" if len(used) > 1 else "GPU"
    name += " SM" * all(gpu.busy_counter == "sm_ratio" for gpu in fresh)
    return f"{name} {busy}" + (f" · tensor {tensor}" if tensor != ABSENT else "")
