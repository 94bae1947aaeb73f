"""Recorded runs with one fact altered: what tuimon says of them follows from that fact."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import structs

from tests.gpu_simulator.ranks_session import records as records_of_ranks
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID
from tests.recorded_logs import log_path
from tuimon.records import (
    CollectiveCount,
    CollectiveCounts,
    Gpu,
    GpuPhase,
    GpuProcess,
    GpuTime,
    LineCalls,
    Native,
    NativeCode,
    Process,
    Record,
    StepCalls,
    Steps,
    Throttle,
    TracedFlops,
    TraceTaken,
)
from tuimon.sources.log.source import read_records

Alters = Callable[[Iterable[Record]], Iterable[Record]]
UNCOUNTED_SMS = dict.fromkeys(("sm_ratio", "occupancy_ratio", "tensor_ratio", "dram_ratio"))
DEAD_SMS = dict.fromkeys(UNCOUNTED_SMS, 0.0)


def counters(**figures: Any) -> Alters:
    """The counters of GPUs while kernels run."""
    return lambda records: (
        structs.replace(each, **figures) if isinstance(each, Gpu) and each.util_ratio else each for each in records
    )


def last_counters(**figures: Any) -> Alters:
    """The last counters of each run."""

    def alters(records: Iterable[Record]) -> Iterator[Record]:
        every = list(records)
        last = max(at for at, each in enumerate(every) if isinstance(each, Gpu))
        yield from (structs.replace(each, **figures) if at == last else each for at, each in enumerate(every))

    return alters


def then(seconds: int, **figures: Any) -> Alters:
    """The run goes on for so long without a step; its GPU's counters meanwhile."""

    def alters(records: Iterable[Record]) -> Iterator[Record]:
        *every, end = records
        last = next(each for each in reversed(every) if isinstance(each, Gpu))
        yield from every
        for later in range(1, seconds + 1):
            yield structs.replace(last, t=last.t + later, energy_j=last.energy_j and last.energy_j + later, **figures)
        yield structs.replace(end, t=end.t + seconds)

    return alters


def midway(*, once: bool = False, **figures: Any) -> Alters:
    """Counters of GPUs from the middle of the steps on, or ``once`` there."""

    def alters(records: Iterable[Record]) -> Iterator[Record]:
        every = list(records)
        busy = [at for at, each in enumerate(every) if isinstance(each, Gpu) and each.util_ratio]
        middle = busy[len(busy) // 2]
        for at, each in enumerate(every):
            is_altered = isinstance(each, Gpu) and (at == middle or (at > middle and not once))
            yield structs.replace(each, **figures) if is_altered else each

    return alters


def second(**figures: Any) -> Alters:
    """A second GPU, which nothing uses."""
    unused = {"index": 1, "uuid": f"GPU-{'2' * 32}", "pids": [], "processes": [], "memory_used_bytes": 500 << 20}

    def alters(records: Iterable[Record]) -> Iterator[Record]:
        for each in records:
            yield each
            if isinstance(each, Gpu):
                yield structs.replace(
                    each, **{**unused, "util_ratio": 0.0, "util_samples": [0.0], **DEAD_SMS, **figures}
                )

    return alters


def gpus(of: Callable[[Gpu], Mapping[str, Any]] = lambda _: {}, **figures: Any) -> Alters:
    """All records of GPUs; ``of``: what each of them has instead."""
    return lambda records: (
        structs.replace(each, **of(each), **figures) if isinstance(each, Gpu) else each for each in records
    )


def beside(taken: float, own: float = 0.0) -> Alters:
    """Another program takes this share of the GPU's time; the training's own share."""

    def of(gpu: Gpu) -> Mapping[str, Any]:
        ours = [GpuProcess(each.pid, each.memory_bytes, own) for each in gpu.processes]
        return {"processes": [*ours, GpuProcess(99, 1 << 30, taken)], "pids": [*gpu.pids, 99]}

    return gpus(of)


def facts(**reported: Any) -> Alters:
    """What training processes report of themselves."""
    return lambda records: (
        structs.replace(each, **reported) if isinstance(each, Process) and each.gpu_uuids else each for each in records
    )


def stream_idle(ratio: float) -> Alters:
    """The stream that is timed has nothing to do for so much of each phase: the work is on others, or in graphs."""

    def idles(phase: GpuPhase) -> GpuPhase:
        return structs.replace(phase, idle_ns=round(ratio * phase.span_ns), maybe_idle_ns=0)

    return lambda records: (
        structs.replace(each, phases=[idles(phase) for phase in each.phases]) if isinstance(each, GpuTime) else each
        for each in records
    )


def counted(*collectives: CollectiveCount, steps: int = 4) -> Alters:
    """Torch's flight recorder was read in the first rank, five seconds into the run."""

    def alters(records: Iterable[Record]) -> Iterator[Record]:
        rank, begun_s = None, None
        for each in records:
            yield each
            rank = each.pid if isinstance(each, Process) and each.rank == 0 else rank
            begun_s = each.t if begun_s is None else begun_s
            if rank is not None and each.t - begun_s >= 5.0:
                yield CollectiveCounts(t=each.t, pid=rank, steps=steps, collectives=[*collectives], pause_ms=10.0)
                rank = None

    return alters


def repeated(*lines: LineCalls) -> Alters:
    """Calls were counted in each training process, after its first window of steps."""

    def alters(records: Iterable[Record]) -> Iterator[Record]:
        counted: set[int] = set()
        for each in records:
            yield each
            if isinstance(each, Steps) and each.pid not in counted:
                counted.add(each.pid)
                yield StepCalls(t=each.t, pid=each.pid, lines=[*lines])

    return alters


def traced(*flops: TracedFlops, steps: int = 5) -> Alters:
    """Each training process was traced, after its first window of steps."""

    def alters(records: Iterable[Record]) -> Iterator[Record]:
        known: set[int] = set()
        for each in records:
            yield each
            if isinstance(each, Steps) and each.pid not in known:
                known.add(each.pid)
                span = {"begin_s": each.t - 1.0, "end_s": each.t, "steps": steps, "wanted": steps}
                yield TraceTaken(t=each.t, pid=each.pid, file="trace.json.gz", flops=[*flops], **span)

    return alters


def below_python(**shares: int) -> Alters:
    """What training threads run, in percent of their samples; libraries by their names, of which ``_`` is a space."""
    rows = [(name.replace("_", " "), "backward", samples) for name, samples in shares.items()]

    def alters(records: Iterable[Record]) -> Iterator[Record]:
        for each in records:
            yield each
            if isinstance(each, Steps):
                code = [NativeCode(each.pid, *row) for row in rows]
                yield Native(t=each.t, pid=each.pid, window_s=1.0, code=code)

    return alters


#: Each rank of the simulator has an H100 of its own, and bfloat16.
_EACH_H100 = {
    **{"name": "NVIDIA H100 80GB HBM3", "sm_clock_mhz": 1980, "sm_clock_max_mhz": 1980, "power_w": 420.0},
    **{"power_limit_w": 700.0, "power_limit_default_w": 700.0, "temperature_c": 55},
    **{"pcie_generation": 5, "pcie_width": 16, "pcie_generation_max": 5, "pcie_width_max": 16},
    **{"pcie_rx_bytes_per_s": 2e7, "pcie_tx_bytes_per_s": 1e7},
    **{"nvlink_rx_bytes_per_s": 12e9, "nvlink_tx_bytes_per_s": 12e9},
    **{"occupancy_ratio": 0.3, "tensor_ratio": 0.35, "dram_ratio": 0.3},
}


def ranks(kind: str, *alterations: Alters, late: Mapping[str, Any] | None = None, **figures: Any) -> Iterable[Record]:
    """Three simulated ranks that run a loop; ``late``: the counters of rank 1's GPU, ``figures``: those of all."""
    simulated, records = records_of_ranks(kind)
    pids = [rank.ring.pid for rank in simulated.ranks]

    def of(gpu: Gpu) -> Mapping[str, Any]:
        number = int(gpu.uuid.removeprefix(UUID))
        held = {"pids": [pids[number]], "processes": [GpuProcess(pids[number], 60 << 30, gpu.util_ratio)]}
        return {**_EACH_H100, "index": number, **held, **figures, **(late or {} if number == 1 else {})}

    for alters in (gpus(of), facts(parameter_dtypes=["bfloat16"], matmul_dtypes=["bfloat16"]), *alterations):
        records = alters(records)
    return records


def on_one_gpu(records: Iterable[Record]) -> Iterator[Record]:
    """All ranks use the first GPU."""
    every = list(records)
    pids = sorted({each.pid for each in every if isinstance(each, Process) and each.gpu_uuids})
    for each in every:
        if isinstance(each, Process) and each.gpu_uuids:
            yield structs.replace(each, gpu_uuids=[f"{UUID}0"])
        elif not isinstance(each, Gpu):
            yield each
        elif each.index == 0:
            yield structs.replace(each, pids=pids, processes=[GpuProcess(pid, 20 << 30, 0.33) for pid in pids])


def with_contexts(records: Iterable[Record]) -> Iterator[Record]:
    """All ranks have a context on the first GPU, too."""
    every = list(records)
    pids = sorted({each.pid for each in every if isinstance(each, Process) and each.gpu_uuids})
    for each in every:
        if isinstance(each, Gpu) and each.index == 0:
            more = [GpuProcess(pid, 500 << 20) for pid in pids if pid not in each.pids]
            each = structs.replace(each, pids=pids, processes=[*each.processes, *more])  # noqa: PLW2901
        yield each


#: Its GPU is busy for 92 % of the steps, and for 68 %; both in float32 without TF32.
BUSY, WAITING = "h100_guard_in_every_layer", "h100_masked_loss"
IN_HALF = facts(parameter_dtypes=["bfloat16"], matmul_dtypes=["bfloat16"])
#: As agents report it that know the types of products.
IN_FULL = facts(parameter_dtypes=["float32"], matmul_dtypes=["float32"], tf32=False, cudnn_tf32=True)
IN_DOUBLE = facts(parameter_dtypes=["float64"])
IDLE = last_counters(**DEAD_SMS)
#: As NVML counts before Hopper.
BEFORE_HOPPER = counters(**UNCOUNTED_SMS)
COPYING, FED_SLOWLY = "h100_pageable_images", "h100_seed_dummy_loader"
#: As in a container whose pids the driver does not know.
UNNAMED = gpus(lambda gpu: {"processes": [GpuProcess(0, each.memory_bytes, 0.6) for each in gpu.processes]}, pids=[])
SLOW = gpus(sm_clock_mhz=1100, sm_clock_max_mhz=1980)
HOT = gpus(throttled=[Throttle("thermal (hardware)", 0.9)])
COOL: dict[str, Any] = {"util_ratio": 0.0, "util_samples": [0.0], "sm_clock_mhz": 1980, "throttled": []}
CAPPED = gpus(throttled=[Throttle("power cap", 0.9)], power_limit_w=400.0, power_limit_default_w=700.0)
DEFAULT_POWER = gpus(power_limit_default_w=700.0)
#: As GPM counts in an instance of a divided GPU: that a kernel runs, and nothing else.
MIG = gpus(
    lambda gpu: {"uuid": gpu.uuid.replace("GPU-", "MIG-"), "parent_uuid": gpu.uuid},
    **{**UNCOUNTED_SMS, "util_samples": [], "power_w": None, "power_limit_w": None, "sm_clock_mhz": None},
    **dict.fromkeys(("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s")),
)
SLOW_LINK = gpus(pcie_generation=4, pcie_width=8, pcie_generation_max=5, pcie_width_max=16)
UNCOUNTED = gpus(pcie_rx_bytes_per_s=0.0, pcie_tx_bytes_per_s=0.0)
COMMANDS = gpus(pcie_rx_bytes_per_s=1e6, pcie_tx_bytes_per_s=1e6)
FEW_COPIED = gpus(lambda gpu: {"pcie_rx_bytes_per_s": (gpu.pcie_rx_bytes_per_s or 0.0) / 10})
A100 = {
    **{"name": "NVIDIA A100-SXM4-80GB", "compute_capability": 8.0, "power_limit_w": 400.0, "power_w": 125.0},
    **{"power_limit_default_w": 400.0, "sm_clock_mhz": 1410, "sm_clock_max_mhz": 1410, **UNCOUNTED_SMS},
}
#: Of 5 steps, each for 30 ms at the peak of an A100 in float32.
_FLOPS = TracedFlops("product", "float32", round(5 * 0.03 * 19.5e12))


def card(name: str, capability: float | None, limit_w: float, used: float = 0.8) -> Alters:
    """Another GPU than Hopper's, which counts neither SMs nor tensor cores; ``used``: of its power limit."""
    power = {"power_limit_w": limit_w, "power_limit_default_w": limit_w, "power_w": used * limit_w}
    return gpus(**{**A100, **power, "name": name, "compute_capability": capability})


#: By name: simulated ranks with one fact altered.
RANKS: dict[str, Callable[[], Iterable[Record]]] = {
    "rank_locked_clocks": lambda: ranks("two losses", late={"sm_clock_mhz": 900}),
    "rank_beside_others": lambda: ranks(
        "two losses", late={"processes": [GpuProcess(PID + 100, 60 << 30, 0.5), GpuProcess(9, 1 << 30, 0.5)]}
    ),
    "rank_of_another_model": lambda: ranks(
        "two losses",
        late={
            "name": "NVIDIA L4",
            **UNCOUNTED_SMS,
            "power_w": 70.0,
            "power_limit_w": 72.0,
            "power_limit_default_w": 72.0,
        },
    ),
    "ranks_with_contexts": lambda: ranks("two losses", with_contexts),
    "rank_slow_link": lambda: ranks("two losses", late={"pcie_width": 8}),
    "rank_few_sms": lambda: ranks("two losses", late={"sm_ratio": 0.05}),
    "rank_dead_counters": lambda: ranks("two losses", late=DEAD_SMS),
    "rank_computes": lambda: ranks("one computes"),
    "rank_hot": lambda: ranks(
        "one computes", late={"sm_clock_mhz": 800, "throttled": [Throttle("thermal (hardware)", 0.9)]}
    ),
    "rank_at_high_power": lambda: ranks("one computes", late={"power_w": 380.0}, **A100),
    "rank_at_high_power_and_low_clocks": lambda: ranks(
        "one computes", late={"power_w": 380.0}, **{**A100, "sm_clock_mhz": 900}
    ),
    "ranks_at_little_power": lambda: ranks("two losses", **{**A100, "power_w": 100.0}),
    "links_idle": lambda: ranks("long exchange", nvlink_rx_bytes_per_s=1e6, nvlink_tx_bytes_per_s=1e6),
    "links_busy": lambda: ranks("long exchange"),
    "ranks_on_one_gpu": lambda: ranks("two losses", on_one_gpu),
    "ranks_of_other_streams": lambda: ranks("one pass", stream_idle(0.6)),
}
#: By name: a log, and how it is altered.
ALTERED: dict[str, tuple[str, tuple[Alters, ...]]] = {
    "few_sms": (BUSY, (counters(sm_ratio=0.06, occupancy_ratio=0.005),)),
    "some_sms": (BUSY, (IN_HALF, counters(sm_ratio=0.4, occupancy_ratio=0.1, tensor_ratio=0.2))),
    "memory_traffic_by_some_sms": (BUSY, (counters(sm_ratio=0.45, dram_ratio=0.92),)),
    "memory_traffic": (BUSY, (counters(dram_ratio=0.92),)),
    "memory_traffic_in_half": (BUSY, (IN_HALF, counters(dram_ratio=0.92, tensor_ratio=0.2))),
    "in_half": (BUSY, (IN_HALF, counters(tensor_ratio=0.45))),
    "idle_at_the_end": (BUSY, (counters(tensor_ratio=0.45), IDLE)),
    "before_hopper": (BUSY, (BEFORE_HOPPER,)),
    "at_little_power": (BUSY, (BEFORE_HOPPER, counters(power_w=180.0))),
    "at_low_clocks": (BUSY, (BEFORE_HOPPER, counters(power_w=180.0, sm_clock_mhz=900))),
    "a100_in_full": (BUSY, (IN_FULL, card("NVIDIA A100-SXM4-80GB", 8.0, 400.0))),
    "a100_in_full_traced": (BUSY, (IN_FULL, card("NVIDIA A100-SXM4-80GB", 8.0, 400.0), traced(_FLOPS))),
    "a100_in_full_at_little_power": (BUSY, (IN_FULL, card("NVIDIA A100-SXM4-80GB", 8.0, 400.0, used=0.26))),
    "a100_in_tf32": (BUSY, (IN_FULL, facts(tf32=True), card("NVIDIA A100-SXM4-80GB", 8.0, 400.0))),
    "a100_of_unknown_products": (BUSY, (facts(tf32=False), card("NVIDIA A100-SXM4-80GB", 8.0, 400.0))),
    "l4_in_full_while_waiting": (WAITING, (IN_FULL, card("NVIDIA L4", 8.9, 72.0))),
    "rtx_3090_in_full_traced": (BUSY, (IN_FULL, card("NVIDIA GeForce RTX 3090", 8.6, 350.0), traced(_FLOPS))),
    "t4_in_full": (BUSY, (IN_FULL, card("Tesla T4", 7.5, 70.0))),
    "v100_in_bfloat16": (BUSY, (IN_HALF, card("Tesla V100-SXM2-16GB", 7.0, 300.0))),
    "p100_in_full": (BUSY, (IN_FULL, card("Tesla P100-PCIE-16GB", 6.0, 250.0))),
    "mi300x_in_full": (BUSY, (IN_FULL, card("AMD Instinct MI300X", None, 750.0))),
    "tf32_while_waiting": (WAITING, (facts(tf32=True), counters(tensor_ratio=0.2))),
    "float64": (BUSY, (IN_DOUBLE,)),
    "float64_while_waiting": (WAITING, (IN_DOUBLE,)),
    "other_streams": (BUSY, (IN_HALF, stream_idle(0.7), counters(tensor_ratio=0.45))),
    "other_streams_in_part": (WAITING, (stream_idle(0.6),)),
    "beside_others_while_idle": (FED_SLOWLY, (beside(0.2),)),
    "beside_others": (BUSY, (beside(0.5, own=0.5),)),
    "beside_others_at_a_time": (BUSY, (beside(0.5, own=0.95),)),
    "beside_an_idle_one": (BUSY, (beside(0.0, own=0.93),)),
    "others_after_the_end": (BUSY, (then(3, processes=[GpuProcess(1087, 1 << 30), GpuProcess(99, 1 << 30, 0.5)]),)),
    "others_until_the_end": (BUSY, (beside(0.5, own=0.5), then(3, processes=[], pids=[]))),
    "unnamed": (WAITING, (UNNAMED,)),
    "memory_error": (BUSY, (gpus(xids=[48]),)),
    "ecc_errors": (WAITING, (gpus(ecc_errors=3),)),
    "remap_pending": (WAITING, (gpus(row_remap="pending"),)),
    "hot": (BUSY, (facts(tf32=True), counters(tensor_ratio=0.45), SLOW, HOT)),
    "hot_then_idle": (BUSY, (facts(tf32=True), counters(tensor_ratio=0.45), SLOW, HOT, then(40, **COOL))),
    "hot_while_waiting": (WAITING, (SLOW, HOT)),
    "locked_clocks": (BUSY, (SLOW,)),
    "low_clocks_while_idle": (FED_SLOWLY, (SLOW,)),
    "power_limit_below_default": (WAITING, (SLOW, CAPPED)),
    "slow_link": (WAITING, (SLOW_LINK,)),
    "no_copies": (COPYING, (COMMANDS,)),
    "uncounted_copies": (COPYING, (UNCOUNTED,)),
    "copies_counted_one_way": (COPYING, (gpus(pcie_rx_bytes_per_s=None),)),
    "copies_over_c2c": (COPYING, (UNCOUNTED, gpus(c2c=True))),
    "few_copies": (COPYING, (FEW_COPIED, gpus(pcie_generation=5, pcie_width=16))),
    "slow_copies": (COPYING, (FEW_COPIED, gpus(pcie_generation=1, pcie_width=2))),
    "counted_collectives": ("big_gradients", (counted(CollectiveCount("all_reduce", 12, 300 << 20, 40 << 20)),)),
    "counted_waits": ("slow_rank", (counted(CollectiveCount("all_reduce", 4, 4 << 20, 1 << 20)),)),
    "repeated_reads": (
        "checkpoint_every_step",
        (repeated(LineCalls("item", "/home/me/train.py", 45, 40), LineCalls("cpu", "/home/me/train.py", 47, 6)),),
    ),
    "polls_in_the_driver": ("queue_full", (below_python(CUDA_driver=97, torch=3),)),
    "computes_in_backward": ("queue_full", (below_python(torch=80, CUDA_driver=20),)),
    "launches_from_python": ("h100_amp_on_a_small_model", (below_python(interpreter=55, torch=25, CUDA_driver=20),)),
    "half_without_products": (BUSY, (IN_HALF, counters(tensor_ratio=0.02))),
    "tf32_without_products": (BUSY, (facts(tf32=True),)),
    "dead_counters": (BUSY, (counters(**DEAD_SMS),)),
    "dead_counters_midway": (BUSY, (midway(**DEAD_SMS),)),
    "mig_instance": (BUSY, (MIG,)),
    "mig_instance_that_waits": (WAITING, (MIG,)),
    "slow_link_beside_c2c": (WAITING, (SLOW_LINK, gpus(c2c=True))),
    "power_limit_lowered_midway": (
        WAITING,
        (midway(sm_clock_mhz=1100, throttled=[Throttle("power cap", 0.9)], power_limit_w=300.0), DEFAULT_POWER),
    ),
    "fell_off_the_bus": (BUSY, (midway(once=True, xids=[79]),)),
    "unknown_error": (BUSY, (midway(once=True, xids=[999]),)),
    "resends": (BUSY, (gpus(pcie_replays=100), midway(pcie_replays=180))),
    "hot_while_idle": (FED_SLOWLY, (SLOW, HOT)),
    "no_memory_left": ("h100_compiled", (gpus(memory_used_bytes=79 << 30, memory_total_bytes=80 << 30),)),
    "second_gpu_unused": (BUSY, (then(40), second(chosen=True))),
    "counters_of_nothing": (BUSY, (BEFORE_HOPPER, counters(util_ratio=0.0, util_samples=[0.0]))),
    "utilisation_of_nothing": (WAITING, (midway(util_ratio=0.0, util_samples=[0.0]),)),
}


def altered(name: str) -> Iterable[Record]:
    """The records of an altered run."""
    if name in RANKS:
        return RANKS[name]()
    log, alterations = ALTERED[name]
    records: Iterable[Record] = read_records(str(log_path(log)))
    for alters in alterations:
        records = alters(records)
    return records
