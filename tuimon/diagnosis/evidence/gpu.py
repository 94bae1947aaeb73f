"""The GPUs of one training process: their use, its steps by their clock, and facts about them from its samples."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from tuimon.diagnosis.evidence.lines import loop_over_data
from tuimon.diagnosis.evidence.process import FIRST_STEPS, ProcessEvidence
from tuimon.diagnosis.evidence.run import used_gpus
from tuimon.interval import Interval
from tuimon.records import Gpu, Place, TraceTaken
from tuimon.session.gpu_time import GpuShare, GpuTimeRow
from tuimon.session.gpus import GpuMeans, GpuRow
from tuimon.session.series import WINDOW_S, mean_of_known, sampling_error, sum_of_all
from tuimon.session.stacks.activity import WAITS
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.text import code_place
from tuimon.threshold import BUSY_IDLE, LARGE, MIN_SAMPLES, MOST, SMALL, TINY, Threshold
from tuimon.torch_code import copies_nothing

if TYPE_CHECKING:
    from tuimon.gpu_calls import SyncCall

READINGS = Threshold(
    6,
    "consecutive readings without a kernel after which a GPU counts as unused; also readings on one NUMA node after"
    " which a process counts as bound to it",
    "our choice: 6 s of a GPU that the run uses, 24 s of any other, and 30 s of a process, which are read less often",
)
MIN_STEPS = Threshold(
    8,
    "least number of steps with GPU times for these to be used, unless steps are long",
    "our choice: the agent times bursts of eight steps, so one whole burst",
)
#: Seconds of timed steps from which even one step is enough: our choice, eight steps of 125 ms. A user whose steps take
#: minutes should not have to wait for eight of them.
_MIN_TIMED_S = 1.0
GPU_CLOCK_WAIT_S = Threshold(
    6.0,
    "seconds after the first step by which GPU times have come, or will not",
    "our choice: they come within two seconds; three times that leaves room for a busy machine",
)
GAPS = Threshold(
    0.02,
    "share of the time between consecutive pieces of work that utilisation may count as idle",
    "measured in tests/gpu_simulator: 0.1 to 1.7 % of recorded trainings on V100, RTX 2080 Ti and MI300X",
)
DEVICE_COPIES = Threshold(
    0.03,
    "share of the time that one of several ranks spends in copies within the GPU's own memory, which no counter shows",
    "measured in tests/gpu_simulator: 0.6 to 2.9 % of recorded trainings on V100, A100 and MI300X, mostly buckets of"
    " gradients",
)
SLOW_PCIE = Threshold(
    1.3e9,
    "bytes a second by NVML's PCIe counters, below which no copy is under way",
    "a third of what pageable memory reaches on PCIe 3 (4 GB/s:"
    " https://developer.nvidia.com/blog/how-optimize-data-transfers-cuda-cc/), as the counters showed 2.0 of 5.5 GB/s"
    " on an H100",
)
#: Least share of a copy's rate that PCIe counters show: 2.0 of 5.5 GB/s on an H100.
COUNTED = 1 / 3
#: Bytes a second of one PCIe lane, by generation (https://en.wikipedia.org/wiki/PCI_Express#Comparison_table).
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
#: Files of torch whose functions wait for values themselves: torch.unique(x), F.one_hot(x).
_ARGUMENT_FILES = ("torch/functional.py", "torch/_tensor.py", "torch/nn/functional.py", "torch/_jit_internal.py")
SMALL_PINNED_BYTES = Threshold(
    float(1 << 20),
    "bytes of pinned memory up to which a copy is short",
    "our choice: 0.1 ms over PCIe 3; torch itself pins a few bytes, through which item() reads its value"
    " (https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/CUDAScalar.cu)",
)
#: Activities in which a thread calls nothing of CUDA.
_CALLS_NOTHING = WAITS - {"ranks", "sync", "io"} | {"import", "compile"}
#: Lines that call a recurrent cell, or index one time step of a tensor.
_CELL_CALL = re.compile(r"[cC]ell\w*\(")
_ONE_AT_A_TIME = re.compile(r"\[\s*(?:(?::|\.\.\.)\s*,\s*)*[a-z]\w*\s*(?:,\s*:\s*)*\]")


class GpuSteps(NamedTuple):
    """A training's steps on the clock of its GPU; shares are of the GPU's time in steps."""

    time: GpuTimeRow  # its idle time as all evidence bounds it
    step_ms: float
    contradiction: tuple[Interval, Interval] | None = None  # the idle time by events and by counters, if these disagree
    wide_because: str | None = None  # why the bounds of the idle time are far apart, for people
    untimed: float = 0.0  # least share of work that events of the stream do not time: on other streams, in CUDA graphs
    sm_ratio: float | None = None  # share of its multiprocessors that were busy in steps, on average
    tensor_ratio: float | None = None  # share of the steps in which its tensor cores were busy, on average
    power_ratio: float | None = None  # its mean power in steps, as a share of its limit
    clock_ratio: float | None = None  # its mean clock in steps, as a share of the highest
    moved_bytes_per_s: float | None = None  # over NVLink and PCIe in steps; None if either is not counted
    traced: Interval | None = None  # share of it in work that is no collective, as a trace of some steps shows it
    waits_anywhere: bool = False  # waits for ranks may lie in any phase: the loop, or compiled code, calls collectives

    @property
    def width_evidence(self) -> dict[str, float | str]:
        """The untimed work, and the reason for wide bounds, as findings report them; empty if the bounds are narrow."""
        wide = {"idle_bounds_wide_because": self.wide_because} if self.wide_because is not None else {}
        return {"gpu_work_untimed_at_least": self.untimed, **wide} if self.untimed else {**wide}

    @property
    def idle(self) -> Interval:
        """Share of the step in which the GPU idles."""
        return self.time.idle

    @property
    def phases(self) -> Mapping[str, GpuShare]:
        return self.time.phases

    @property
    def is_bottleneck(self) -> bool:
        """True if the GPU always has something to do."""
        return self.idle.high < BUSY_IDLE

    def idle_in(self, *names: str) -> Interval:
        """Share of the step in which the GPU idles during these phases."""
        in_parts, beside = (
            Interval.sum_of(phase.idle for name, phase in self.phases.items() if (name in names) is inside)
            for inside in (True, False)
        )
        if self.contradiction is not None:
            return in_parts
        return Interval(max(in_parts.low, self.idle.low - beside.high), min(in_parts.high, self.idle.high - beside.low))


class Launching(Struct, frozen=True, gc=False):
    """A training's way of launching work; shares are of the step."""

    is_compiled: bool = False  # or replays CUDA graphs
    loop: HotLine | None = None  # in the model; it makes most of forward's launches
    calls_cell: bool = False  # that loop calls a recurrent cell for each time step
    scaler: float = 0.0  # GradScaler's own work and waits
    files: frozenset[str] = frozenset()  # of all code on its stacks


class GpuEvidence(Struct, frozen=True, dict=True):
    """The GPUs of a training process, and its use of them."""

    _own: ProcessEvidence

    @cached_property
    def rows(self) -> tuple[GpuRow, ...]:
        """The run's GPUs that this training uses; all GPUs of the run if it has not reported which."""
        known, process = used_gpus(self._own.view, self._own.node), self._own.process
        own = [row for row in known if process.uses(row.latest)]
        if not own:
            own = [row for row in known if not process.gpu_uuids or process.pid in row.run_pids]
        return tuple(own)

    @cached_property
    def is_used(self) -> bool | None:
        """True if it computes on a GPU; None if that is unknown."""
        if (
            self.has_stepped_for_long
            and self.rows
            and all(runs_nothing(row) for row in self.rows)
            and not self.is_contradicted
        ):
            return False  # it only holds GPUs, or was given them
        process, gpus = self._own.process, self._own.view.gpus_on(self._own.node)
        if process.gpu_uuids or any(row.used_by_run for row in gpus):
            return True
        if "+cpu" in (process.torch or ""):
            return False
        # NVML was queried: no process of ours, or no driver at all
        return False if gpus or "gpu" in self._own.view.session.notices else None

    @property
    def has_stepped_for_long(self) -> bool:
        """True if it has made steps for so long that a GPU without a kernel since then must be unused."""
        own, first_step_s = self._own, self._own.stats.first_step_s
        if not own.phases.trains or not own.is_marked:  # attached without markers: only the GPU's readings are known
            return own.phases.trains
        return first_step_s is not None and own.view.now_s - first_step_s >= WINDOW_S

    @property
    def is_contradicted(self) -> bool:
        """True if NVML's counters and the events contradict each other, so that neither can be trusted."""
        return self.steps is not None and self.steps.contradiction is not None

    @cached_property
    def counted(self) -> tuple[tuple[Gpu, GpuMeans], ...]:
        """The GPUs with counters over the steps, the least used first; empty if events contradict the counters."""
        known = [(row.latest, row.means) for row in self.rows if row.means is not None and not self.is_contradicted]
        return tuple(sorted(known, key=lambda each: 1.0 if each[1].util_ratio is None else each[1].util_ratio))

    @property
    def utilisation(self) -> float | None:
        """The utilisation of the least used GPU; None if there are no counters."""
        return self.counted[0][1].util_ratio if self.counted else None

    @cached_property
    def trace(self) -> TraceTaken | None:
        """Its latest trace; None if none was taken."""
        return next((each for each in reversed(self._own.view.session.traces) if each.pid == self._own.pid), None)

    @cached_property
    def product_types(self) -> set[str]:
        """The types of its matrix products, by its latest trace, or the graphs of its first passes; empty if unknown.

        Those graphs do not show the products of a compiled model.
        """
        flops = self.trace.flops if self.trace is not None else None
        seen = () if self.launching.is_compiled else self._own.process.matmul_dtypes
        return {row.dtype for row in flops} if flops else set(seen)

    def waits_in_trace(self, place: Place) -> dict[str, float]:
        """The waits at a line in a mean step, by the runtime's call, from a trace; empty if the trace shows none.

        The trace's lines were sampled at most a thousand times a second: a short call may count at the next line.
        """
        line = code_place(place)
        syncs = self.trace.syncs if self.trace is not None else []
        rows = [row for row in syncs if row.where.rpartition("() ")[2] == line]  # of "main() train.py:44"
        if self.trace is None or not rows:
            return {}
        steps = self.trace.steps or 1
        return {
            "waits_per_step": sum(row.count for row in rows) / steps,
            "waited_ms_per_step": sum(row.total_ns for row in rows) / steps / 1e6,
        }

    # -- by the GPU's clock

    @cached_property
    def steps(self) -> GpuSteps | None:
        """The steps on the GPU's clock; None if too few steps have GPU times.

        Events bound the GPU's idle time in each phase; while the training thread waits for it, the GPU is not idle.
        NVML's utilisation bounds the idle time of the whole step. Unless the two contradict each other, the certain
        idle time of all phases but one narrows the bounds of that one.
        """
        time = self._own.gpu_time
        if time is None or not time.phases or not has_enough_steps(time.steps, time.timed_s):
            return None  # computes nothing further: comm_bound queries 64 ranks on CPUs
        step_ms, samples, is_alone = self._own.phases.mean_ms, self._own.samples, self._own.world_size < 2
        if not step_ms:
            return None
        launching, phases = self._launching(), {}
        for name, (span, (low, high)) in time.phases.items():
            phases[name] = GpuShare(span, Interval(low, max(low, min(high, launching.get(name, high)))))
        by_events = Interval.sum_of(phase.idle for phase in phases.values())
        by_counters = self._idle_by_counters(phases["forward"].span)
        untimed = max(0.0, by_events.low - by_counters.high) if by_counters is not None else 0.0
        if by_counters is not None and untimed:
            # kernels of other streams, such as NCCL's, run while the timed stream has nothing to do, in unknown phases
            most = by_events.high - by_counters.low if is_alone else untimed
            phases = {
                name: GpuShare(span, Interval(max(0.0, idle.low - most), idle.high))
                for name, (span, idle) in phases.items()
            }
            by_events = Interval.sum_of(phase.idle for phase in phases.values()).up_to(by_counters.high)
        idle = by_events.reconciled(by_counters) if by_counters is not None else by_events
        agree = by_counters is None or by_events.overlaps(by_counters)
        outside = samples.where(phase=[name for name in samples.phases if name != "backward"])
        counted = [(row.latest, row.means) for row in self.rows if row.means is not None]
        found = GpuSteps(
            time=time._replace(idle=idle, phases=phases),
            step_ms=step_ms,
            contradiction=None if agree or by_counters is None else (by_events, by_counters),
            wide_because=why_wide(idle, by_counters, are_shared=self.is_shared) if agree else None,
            untimed=untimed,
            sm_ratio=mean_of_known(means.sm_ratio for _, means in counted),
            tensor_ratio=mean_of_known(means.tensor_ratio for _, means in counted),
            power_ratio=mean_of_known(_part(means.power_w, gpu.power_limit_w) for gpu, means in counted),
            clock_ratio=mean_of_known(_part(means.sm_clock_mhz, gpu.sm_clock_max_mhz) for gpu, means in counted),
            moved_bytes_per_s=_moved(self.rows[0]) if len(self.rows) == 1 else None,
            traced=self._traced(step_ms, [each.forward_ns for each in time.exchanges if each.forward_ns > 0.0]),
            waits_anywhere=outside.where(doing="ranks").total + outside.where(below="compiled_call").total > 0,
        )
        narrowed = {name: GpuShare(phase.span, found.idle_in(name)) for name, phase in phases.items()}
        return found._replace(time=found.time._replace(phases=narrowed))

    def _traced(self, step_ms: float, forward_ns: Sequence[float]) -> Interval | None:
        """The share of a step with work that is no collective, by the latest trace; None if it shows none.

        The profiler changes when a GPU works, not for how long. The fewer steps were traced, and the more their work
        differs, as forward's length in each step (``forward_ns``) or else the steps' own shows, the less exact.
        """
        trace, steps = self.trace, self._own.totals
        if trace is None or trace.gpu_computing_ns is None or not trace.steps or not self.rows:
            return None
        deviation = ((steps.quantile_ms(0.84) or math.inf) - (steps.quantile_ms(0.16) or 0.0)) / 2.0 / step_ms
        if len(forward_ns) >= MIN_STEPS:
            deviation = stdev(forward_ns) / fmean(forward_ns)
        error = 3.0 * deviation / math.sqrt(trace.steps)  # three standard errors
        own = trace.gpu_computing_ns / 1e6 / trace.steps / len(self.rows) / step_ms
        return Interval(own / (1.0 + error) - TINY, own / (1.0 - error) + TINY) if error < 1.0 else None

    def _idle_by_counters(self, in_forward: float) -> Interval | None:
        """Bounds of the GPU's idle time, from the share of time in which a kernel ran; None if that is not measured.

        Copies are not kernels; those between host and GPU lie in forward, which takes this share of the steps. Kernels
        of other programs, or of another rank on the same GPU, could hide idle time.
        """
        known = [(row, row.means) for row in self.rows if row.means is not None and row.means.util_at_most is not None]
        if not known:
            return None
        copying, error, sampled = 0.0, 0.0, self.copying_at_most
        for row, means in known:  # by samples and PCIe counters
            peak = pcie_peak(row.latest.pcie_generation, row.latest.pcie_width)
            slowest = min(SLOW_PCIE, COUNTED * peak) if peak is not None else SLOW_PCIE
            shares = [sum(rates) / slowest] if (rates := pcie_rates(row, means)) else []
            shares += [sampled] if sampled is not None else []
            in_steps = means.steps_ratio or 1.0
            copying = max(copying, min((share / in_steps for share in shares), default=in_forward))
            error = max(error, TINY / in_steps)
        most = max(means.util_at_most or 0.0 for _, means in known) + error
        least = min((means.util_at_least or 0.0) - self._beside(row) for row, means in known) - error
        copying = min(1.0, copying) + (TINY if self._own.world_size < 2 else DEVICE_COPIES)
        return Interval(max(0.0, 1.0 - min(1.0, most) - copying - GAPS), 1.0 - max(0.0, least))

    @property
    def is_shared(self) -> bool:
        """True if kernels of other processes may run on its GPUs."""
        return any(self._beside(row) >= TINY for row in self.rows)

    def _beside(self, row: GpuRow) -> float:
        """The largest share of the time in which kernels of other processes may run on a GPU."""
        others = [each for each in row.holders if each.pid != self._own.pid]
        if len(others) == len(row.holders):
            return float(row.is_shared)  # the driver does not name this one
        return min(1.0, sum(each.computing.high for each in others))

    def _launching(self) -> dict[str, float]:
        """By phase in which the CPU waits for the GPU at all: the share of the step in which it does not.

        The GPU can idle in the phase only during that time. If samples divide the phases, the GPU's clock knows only
        their sum, as forward.
        """
        rows, waits = [row for row in self._own.phases.rows if row.name != "eval"], self.waits
        samples = self._own.samples.in_steps.total
        found = {}
        for name in (row.name for row in rows):
            on_cpu = [row for row in rows if row.name == name or (row.estimated and name == "forward")]
            waited = sum(waits.phases[row.name] for row in on_cpu) / samples if waits is not None else 0.0
            surely = max(0.0, waited - sampling_error(waited, samples)) if waited >= TINY else 0.0
            if surely:
                found[name] = sum(row.share for row in on_cpu) - surely
        return found

    @cached_property
    def awaits_times(self) -> bool:
        """True if GPU times are still to come: until then, the CPU may be waiting for a busy GPU."""
        return self._has_just_begun and self.is_used is True and self.steps is None

    @property
    def awaits_idle_causes(self) -> bool:
        """True if evidence of why a GPU idles is still to come: samples and NVML's figures."""
        unread = any(utilisation(row) is None for row in self.rows)
        return self._has_just_begun and (self.waits is None or unread)

    @property
    def _has_just_begun(self) -> bool:
        """True if too few seconds or steps have passed since the first step for everything to have been measured."""
        first_step_s = self._own.stats.first_step_s
        if not self._own.process.markers or first_step_s is None:
            return False
        # a long step is timed whole, its times are polled at the next one, and a burst may begin late
        longest_s = max(GPU_CLOCK_WAIT_S, FIRST_STEPS * (self._own.totals.quantile_ms(0.5) or 0.0) / 1e3)
        return self._own.view.now_s - first_step_s <= longest_s

    # -- by samples of the training thread

    @cached_property
    def waits(self) -> Samples | None:
        """The samples of steps in which the thread waits for the GPU; None with too few samples of steps."""
        steps = self._own.samples.in_steps
        return steps.where(awaits_gpu) if steps.total >= 3 * MIN_SAMPLES else None

    @property
    def copying_at_most(self) -> float | None:
        """The largest share of the time in copies; None with few samples, or if pinned memory makes copies invisible.

        Every sample counts in which the training thread may be in a call that copies: 40 of 1,000 are 4 %, and 5.4 % at
        most. A module's copy in forward counts twice: backward may repeat it, where samples do not show it.
        """
        pinned, samples = [row.pinned_bytes for row in self._own.torch_memory], self._own.samples
        if not pinned or any(count is None or count > SMALL_PINNED_BYTES for count in pinned):
            return None
        if samples.total < 3 * MIN_SAMPLES:
            return None
        copying = samples.where(
            lambda node: (
                bool(node.frames)
                and node.activity not in _CALLS_NOTHING
                and not copies_nothing(node.frame.file, node.frame.function.rpartition(".")[2])
            )
        )
        in_model = copying.where(lambda node: any("torch/nn/modules/" in f.file for f in node.frames), phase="forward")
        ratio = min(1.0, (copying.total + in_model.total) / samples.total)
        return min(1.0, ratio + sampling_error(max(ratio, 1.0 / samples.total), samples.total))

    @cached_property
    def launches_at_most(self) -> float:
        """The largest share of time (0..1) that launches may take: CPU time of the training and autograd threads."""
        used = sum_of_all(row.cpu_ratio for row in self._own.computing)
        return min(1.0, used) if used is not None else 1.0

    @cached_property
    def launching(self) -> Launching:
        """The training's way of launching work; empty with too few samples."""
        samples = self._own.samples
        steps = samples.in_steps
        if steps.total < MIN_SAMPLES:
            return Launching()
        forward, loop = steps.where(phase="forward"), loop_over_data(steps)
        cells = forward.where(_calls_cell)
        calls_cell = loop is not None and cells.total >= MOST * loop.samples
        return Launching(
            is_compiled=forward.part(below="compiled_call") >= SMALL or steps.part(below="graph_replay") > 0,
            loop=cells.hottest() if calls_cell else loop,
            calls_cell=calls_cell,
            scaler=steps.part(lambda node: node.has("scaler") and not node.has("optimizer_code")),
            files=frozenset(frame.file for row in steps.rows for frame in row.node.frames),
        )


def awaits_gpu(node: StackNode) -> bool:
    """True if the training thread reads a value from the GPU at a stack, or synchronises with it.

    The line's syntax decides: the same words on plain values take no time, and a line at which the training thread is
    often sampled does wait.
    """
    doing, leaf, place = node.activity, node.frame, node.place
    if not node.frames or doing in ("sync", "transfer"):
        return doing == "sync"
    if "scaler" in leaf.roles:
        return True
    is_known = leaf.user or leaf.file.endswith(_ARGUMENT_FILES)
    if doing not in ("python", "torch") or place is None or not is_known:
        return False
    calls = [call for call in calls_at(place) if call.kind != "copy"]
    # inside another function, only a call that always waits
    return bool(calls) if leaf.user else any(call.is_certain and call.kind in ("shape", "mask") for call in calls)


def calls_at(place: Place) -> Sequence[SyncCall]:
    """The calls on a line that wait for the GPU, the likeliest first."""
    from tuimon.gpu_calls import sync_calls  # noqa: PLC0415  (loads a parser)

    return sync_calls(place.source)


def _calls_cell(node: StackNode) -> bool:
    line = node.user_line
    if line is None:
        return False
    return bool(_CELL_CALL.search(line.text) or (node.has("recurrent") and _ONE_AT_A_TIME.search(line.text)))


def utilisation(row: GpuRow) -> float | None:
    """Share of the steps' time in which a kernel ran on a GPU; None if not measured."""
    return row.means.util_ratio if row.means is not None else None


def _part(used: float | None, most: float | None) -> float | None:
    return used / most if used is not None and most else None


def _moved(row: GpuRow) -> float | None:
    """Bytes a second over NVLink and PCIe, in both directions; None if not all four rates are counted."""
    nvlink = (row.figures.nvlink_rx_bytes_per_s, row.figures.nvlink_tx_bytes_per_s)
    rates = [*pcie_rates(row, row.figures), *(rate for rate in nvlink if rate is not None)]
    return sum(rates) if len(rates) == 4 else None


def whole_gpus(gpus: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    """A machine's GPUs with recent figures, except MIG instances and the GPUs that are divided into them."""
    return tuple(row for row in gpus if row.latest.parent_uuid is None and not row.is_divided and not row.is_old)


def runs_nothing(row: GpuRow) -> bool:
    """True if no kernel of any program has run on a GPU for as long as its readings are kept."""
    known = [used for used in row.history("util_ratio") if used is not None]
    return len(known) >= READINGS and max(known) < TINY


def is_free(row: GpuRow) -> bool:
    """True if nobody seems to use a GPU; in a container the driver may hide other processes."""
    gpu = row.latest
    is_held = bool(gpu.processes or gpu.pids) or (gpu.memory_ratio or 0.0) >= SMALL
    return not row.used_by_run and not is_held and not gpu.util_ratio


def has_enough_steps(steps: int, timed_s: float) -> bool:
    """True if enough steps were timed to judge them, by number or by their total length."""
    return steps >= MIN_STEPS or timed_s >= _MIN_TIMED_S


def pcie_peak(generation: int | None, width: int | None) -> float | None:
    """Bytes a second of a link, each way; None if unknown."""
    lane = _LANE_BYTES_PER_S.get(generation or 0)
    return lane * width if lane is not None and width else None


def pcie_rates(gpu: GpuRow, figures: GpuMeans | Gpu) -> list[float]:
    """Bytes a second by PCIe counters, both ways.

    Empty if one is absent or both are dead (even launches are read over PCIe), or if copies between host and GPU go
    over C2C, which they do not count.
    """
    rates = [figures.pcie_rx_bytes_per_s, figures.pcie_tx_bytes_per_s]
    known = [rate for rate in rates if rate is not None]
    return known if len(known) == len(rates) and max(known) and not gpu.latest.c2c else []


def why_wide(idle: Interval, counters: Interval | None, *, are_shared: bool) -> str | None:
    """Why the bounds are far apart; None if they are close.

    ``counters``: the bounds by NVML's utilisation, which are as far apart at least. ``are_shared``: other processes may
    compute on the GPUs.
    """
    if idle.width < LARGE:
        return None
    reason = "NVML does not count copies, which may take all the time without a kernel"
    if counters is None:
        reason = "NVML's utilisation is not known"
    elif are_shared:
        reason = "NVML counts other processes as busy"
    return f"{reason}; tuimon trace measures the idle time"
