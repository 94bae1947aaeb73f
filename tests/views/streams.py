"""Realistic record streams: what the app is tested with."""

import math

import msgspec

from tests.session.records import frames, header, process, stacks, steps, thread, threads
from tests.session.stacks import profiles
from tests.views.playback import MAIN, Launched, Output, Playback
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.judging import diagnose
from tuimon.interval import Interval
from tuimon.records import (
    Cost,
    Exit,
    Frame,
    Frames,
    Gpu,
    GpuPhase,
    GpuProcess,
    GpuTime,
    Lead,
    Notice,
    OptimizerFacts,
    Place,
    Printed,
    RangeTime,
    StackCount,
    Stacks,
    Throttle,
    TorchMemory,
)

GIB = 1024**3
PIN, AUTOGRAD = 4311, 4312


INPUT_BOUND = Finding(
    rule="input_bound",
    severity="critical",
    headline="62 % of every step waits for data: augment() transforms.py:31 keeps both workers at 100 %",
    fixes=(
        Fix(
            "num_workers=2 -> 6 on this 16-core machine; or make augment() transforms.py:31 cheaper",
            2.13,
            Interval(2.13, 2.13),
        ),
    ),
    cause="workers_saturated",
    share_of_step=0.62,
    where=(Place("/home/me/project/transforms.py", 31, "augment", "out = cv(img, kernel)"),),
    evidence={"data_ms_per_step": 41.5, "step_ms": 67.1, "workers": 2, "worker_cpu_ratio": 0.998, "hot_share": None},
)
SIDE_WORK = Finding(
    rule="side_work",
    severity="warning",
    headline="5 % of every step goes into logging: train.py:71",
    fixes=(Fix("log every 50 steps instead of every step", 1.05, Interval(1.05, 1.05)),),
    share_of_step=0.05,
)

PLACES = (
    ("/home/me/project/train.py", 44, "main", "for x, y in loader:", True),
    ("/home/me/project/transforms.py", 31, "augment", "out = cv(img, kernel)", True),
    ("/usr/lib/python3/torch/utils/data/_utils/pin_memory.py", 52, "do_one_step", "", False),
    ("/home/me/project/train.py", 52, "main", "loss = criterion(model(x), y)", True),
)


def start():
    return [
        header(pid=MAIN, cpu_count=16),
        process(MAIN, ppid=1, command=["python", "train.py", "--epochs", "3"], gpu_uuids=["GPU-0"]),
        process(4300, "worker", ppid=MAIN),
        process(4301, "worker", ppid=MAIN),
        frames(*PLACES),
    ]


def seconds(first, count, *, gpus=1, data_ms=41.5, ranges=()):
    """``count`` windows of a second from ``first`` on, one list of records each."""
    return [_second(t, gpus, data_ms, ranges) for t in range(first, first + count)]


def _second(t, gpus, data_ms, ranges):
    wave = 1 + 0.25 * math.sin(t / 5) + (0.9 if t % 23 == 0 else 0.0)
    phases = {"data": data_ms * wave, "forward": 7.1, "backward": 10.4, "optimizer": 3.9, "other": 3.2}
    natives = [(MAIN + 100 + i, f"omp_{i}", 0.02 * (i % 3), "waiting", 0.0) for i in range(4)]
    records = [
        steps(float(t), phases, count=15, pid=MAIN, first_index=15 * t, ranges=list(ranges)),
        stacks(float(t), ([1], 20), pid=4300),
        stacks(float(t), ([1], 20), pid=4301),
        Stacks(t=float(t), pid=MAIN, window_s=1.0, samples=20,
               stacks=[StackCount(MAIN, "MainThread", [0], 13), StackCount(MAIN, "MainThread", [3], 7),
                       StackCount(PIN, "Thread-1 (_pin_memory_loop)", [2], 20)]),
        threads(float(t), (MAIN, "python", 0.38 + 0.02 * (t % 3), "waiting", 0.01),
                (PIN, "pt_data_pin", 0.03, "waiting", 0.0), (AUTOGRAD, "pt_autograd_0", 0.17, "waiting", 0.0),
                *natives, pid=MAIN, cpu_ratio=0.6),
        threads(float(t), (4300, "python", 1.0, "running", 0.02), pid=4300),
        threads(float(t), (4301, "python", 0.97, "running", 0.14), pid=4301),
        Printed(t=float(t), pid=MAIN, place="epoch 3: 420 of 1563, 01:16 left", loss="1.81"),
        Cost(t=float(t), pid=0, cpu_ratio=0.042, sampler_cpu_ratio=0.021, rss_bytes=62 * 2**20),
    ]  # fmt: skip
    return records + [gpu(t, index) for index in range(gpus)]


def gpu(t, index=0, **more):
    util = max(0.0, min(1.0, 0.37 + 0.3 * math.sin(t / 3 + index)))
    facts = {
        "util_ratio": util,
        "memory_used_bytes": int(21.4 * GIB),
        "memory_total_bytes": 80 * GIB,
        "power_w": 310.0 + 10 * index,
        "power_limit_w": 700.0,
        "temperature_c": 61.0,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
    }
    return Gpu(t=float(t), pid=0, index=index, uuid=f"GPU-{index}", name="NVIDIA H100 80GB HBM3", **(facts | more))


RANGES = (
    RangeTime("batch", 15, 15 * 66_000_000, "data"),
    RangeTime("batch/augment", 30, 15 * 31_000_000, "data"),
    RangeTime("conv", 15, 15 * 5_000_000, "forward"),
)
NO_GPU = Notice(
    t=0.5,
    pid=0,
    source="gpu",
    level="info",
    message="no NVIDIA driver on this machine",
    hint="libnvidia-ml.so.1 not found",
)
PROGRESS = (
    b"Files already prepared\nepoch 1  loss 2.3012  acc 0.112\nepoch 2  loss 1.9120  acc 0.301\n"
    b"\x1b[32mcheckpoint saved\x1b[0m to runs/a/2.pt\n"
    b"\repoch 3:  10%|#         | 156/1563 [00:10<01:33, 14.9it/s, loss=1.83]"
    b"\repoch 3:  27%|##7       | 420/1563 [00:28<01:16, 14.9it/s, loss=1.81]"
)


def _playback(records, findings=()):
    return Playback(records, findings, output=Output(PROGRESS), launched=Launched())


def _of_seconds(windows, findings, *, before=(), **more):
    whole = [record for window in seconds(1, windows, **more) for record in window]
    return _playback([*start(), *before, *whole], findings)


def input_bound(windows=192, gpus=1, **more):
    """Two saturated workers on a machine with GPUs."""
    return _of_seconds(windows, [INPUT_BOUND, SIDE_WORK], gpus=gpus, **more)


BOUNDARIES = ("fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")


def gpu_time(t, lead_us, drained, idle):
    """A second of 15 steps of 66 ms on the GPU's clock; the lead grows over the loop."""
    spans = {"data": 4, "forward": 20, "backward": 32, "optimizer": 8, "other": 2}
    phases = [GpuPhase(name, 15 * ms * 10**6, int(15 * ms * 10**6 * idle), int(15 * ms * 10**5 * idle))
              for name, ms in spans.items()]  # fmt: skip
    leads = [Lead(name, 15, lead_us * (1 + i) / 2, lead_us * (2 + i) / 3, lead_us * (3 + i) / 2, round(15 * drained))
             for i, name in enumerate(BOUNDARIES)]  # fmt: skip
    return GpuTime(t=float(t), pid=MAIN, window_s=1.0, device=0, steps=15, total_ns=15 * 66 * 10**6, phases=phases,
                   bounded=True, leads=leads, lead_error_us=14.0)  # fmt: skip


def _hopper(t, **more):
    """One GPU that tells all there is."""
    wave = math.sin(t / 4)
    return gpu(t, 0, **({
        "util_ratio": 0.96 + 0.03 * wave, "sm_ratio": 0.7 + 0.1 * wave, "tensor_ratio": 0.12 + 0.03 * wave,
        "dram_ratio": 0.44 + 0.1 * wave, "memory_used_bytes": int(41.3 * GIB), "power_w": 512.0 + 20 * wave,
        "memory_temperature_c": 72.0, "energy_j": 1e6 + 512.0 * t, "pcie_rx_bytes_per_s": 1.2 * GIB,
        "pcie_tx_bytes_per_s": 0.3 * GIB, "pids": [MAIN, 977],
        "processes": [GpuProcess(MAIN, int(38.1 * GIB), 0.71), GpuProcess(977, 3 * GIB)],
    } | more))  # fmt: skip


def _on_hopper(windows, lead_us, drained, idle, *, beside=lambda t: (), **more):
    records = start()
    for t in range(1, windows + 1):
        records += [*_second(t, 0, 2.0, ()), _hopper(t, **more), gpu_time(t, lead_us, drained, idle), *beside(t)]
    return _playback(records)


def gpu_bound(windows=60):
    """The GPU has enough to do; the tensor cores have not."""
    held = {"device": 0, "allocated_bytes": 28 * GIB, "peak_bytes": 34 * GIB, "reserved_bytes": 36 * GIB}
    sizes = {"device": "cuda", "parameter_bytes": 2 * GIB, "gradient_bytes": 2 * GIB, "state_bytes": 4 * GIB}
    adam = [OptimizerFacts("AdamW", "torch", **sizes)]
    first = [process(MAIN, ppid=1, command=["python", "train.py"], gpu_uuids=["GPU-0"], optimizers=adam)]

    def beside(t):
        return [*(first if t == 1 else ()), TorchMemory(t=float(t), pid=MAIN, **held)]

    return _on_hopper(windows, 38_000.0, 0.0, 0.002, beside=beside)


def launch_bound(windows=60):
    """The GPU waits for the CPU, and is slowed down on top of it."""
    return _on_hopper(windows, 40.0, 0.84, 0.31, throttle=["power cap"], throttled=[Throttle("power cap", 0.34)])


def healthy(windows=60):
    """Nothing to complain about, no GPU."""
    return _of_seconds(windows, [], before=[NO_GPU], gpus=0, data_ms=0.4)


def profiled():
    """Stack samples of a training thread and its workers."""
    return Playback(profiles.records())


def no_gpu(windows=60):
    """Input-bound without a GPU, with user ranges."""
    return _of_seconds(windows, [INPUT_BOUND], before=[NO_GPU], gpus=0, ranges=RANGES)


def ended(windows=60):
    """Crashed after that many seconds."""
    run = input_bound(windows)
    last = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    run.session.add(Exit(t=windows + 1.0, pid=MAIN, exit_code=1, last_line=last))
    return run


def inferred():
    """Attached to a process without markers."""
    records = [
        msgspec.structs.replace(header(pid=MAIN, cpu_count=16), mode="attach"),
        process(MAIN, markers=False, markers_reason="it was not started by tuimon run", command=["python", "train.py"]),
        Frames(t=0.0, pid=MAIN, first=0, frames=[
            Frame("/home/me/project/train.py", 44, "main", "for x, y in loader:", True),
            Frame("/usr/lib/python3/torch/utils/data/dataloader.py", 700, "__next__"),
            Frame("/usr/lib/python3/torch/autograd/__init__.py", 300, "backward"),
            Frame("/usr/lib/python3/torch/optim/adam.py", 90, "step"),
            Frame("/usr/lib/python3/torch/nn/modules/module.py", 1500, "_call_impl"),
        ]),
        Notice(t=0.5, pid=MAIN, source="markers", level="info",
               message="markers are off: it was not started by tuimon run"),
        NO_GPU,
    ]  # fmt: skip
    for t in range(1, 20):
        records.append(stacks(float(t), ([0, 1], 9), ([0, 4], 5), ([0, 2], 4), ([0, 3], 2), pid=MAIN))
        records.append(threads(float(t), (MAIN, "python", 0.9, "running", 0.0), pid=MAIN))
    return Playback(records)


def eight_gpus():
    """A node with eight GPUs, one of them slowed down."""
    run = input_bound(60, gpus=8)
    run.session.add(gpu(61, 5, throttle=["power cap", "thermal"], util_ratio=None, power_w=None))
    return run


RANK_LINES = frames(
    ("/home/me/project/train.py", 52, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("/home/me/project/text.py", 118, "tokenize", "ids = [vocabulary[w] for w in text.split()]", True),
    ("/usr/lib/python3/torch/nn/modules/module.py", 1500, "_call_impl"),
)


def rank_second(t, rank, late):
    """One second of a rank of a training in step: the late one's forward pass takes 30 ms longer."""
    pid, own_ms = MAIN + rank, 105.0 if late else 75.0
    phases = {"data": 2, "forward": 50 if late else 20, "backward": 50 if late else 80, "optimizer": 3}
    return [thread(t, own_ms / 105, 0.0, pid=pid), steps(t, phases, pid=pid, first_index=10 * int(t))]


def ranks(count=8, late=5, windows=60, since=25):
    """A training of ranks in step; one of them is late from some moment on."""
    records = [header(cpu_count=64, pid=MAIN), RANK_LINES, NO_GPU]
    for rank in range(count):
        records.append(process(MAIN + rank, rank=rank, world_size=count, ppid=50, python="3.11.7"))
    for t in range(1, windows + 1):
        for rank in range(count):
            records += rank_second(t, rank, rank == late and t > since)
    for rank in range(count):
        records.append(stacks(windows, ([2, 3] if rank == late else [0, 1], 60), ([2, 3], 30), pid=MAIN + rank))
    run = Playback(records)
    run.findings = diagnose(run.session)
    return run


def trainings():
    """Processes that train side by side, and are no ranks of one training."""
    records = [header(cpu_count=64, pid=MAIN), RANK_LINES, NO_GPU]
    records += [process(MAIN + n, ppid=50, start_unix_s=1.7e9 + n) for n in range(4)]
    records += [record for n in range(4) for record in rank_second(1, n, False)]
    return Playback(records)


def two_groups():
    """Two trainings of two ranks each, started by one command."""
    records = [header(cpu_count=64, pid=MAIN), RANK_LINES, NO_GPU]
    for group, script in enumerate(("train.py", "other.py")):
        for rank in range(2):
            facts = {"rank": rank, "world_size": 2, "ppid": 50 + group, "start_unix_s": 1.7e9 + group}
            pid = MAIN + 10 * group + rank
            records.append(process(pid, python="3.11.7", command=["python", script], **facts))
            records += rank_second(1, 10 * group + rank, False)
    return Playback(records)
