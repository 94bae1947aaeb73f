"""The records of one rank of a made-up job (``bench.fleet_logs``), a second at a time; seeded."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tuimon.records import (
    Frame,
    Gpu,
    GpuPhase,
    GpuTime,
    Lead,
    Loader,
    LoaderFacts,
    LoaderWorker,
    PhaseTime,
    Process,
    RankStep,
    Record,
    SlowStep,
    StackCount,
    Stacks,
    Steps,
    ThreadCpu,
    Threads,
    TorchMemory,
    length_bucket,
)
from tuimon.session.steps import SHARED_PARTS
from tuimon.sources.markers.steps_record import stride_of

BEGUN_UNIX_S = 1.75e9
#: Imports and set-up before the first step.
SET_UP_S = 2.0
#: The launcher on each node.
ROOT = 1000
#: What a rank's step is made of: (phase, share). A late rank is longer in data, and waits less in backward.
SHARES = (("data", 0.05), ("forward", 0.27), ("backward", 0.55), ("other", 0.03), ("optimizer", 0.10))
#: By how much of the step a late rank is late: the others wait as long in backward, without CPU.
_LATE_BY = 0.2
CODE = (
    ("/job/train.py", "main", "for batch in loader:"),
    ("/job/train.py", "train_step", "loss = model(batch).loss"),
    ("/job/train.py", "train_step", "loss.backward()"),
    ("/job/data.py", "read_shard", "blob = open(path).read()"),
    ("/site-packages/torch/_tensor.py", "backward", ""),
    ("/site-packages/torch/autograd/__init__.py", "backward", ""),
    ("/site-packages/torch/nn/modules/module.py", "_call_impl", ""),
    ("/site-packages/torch/nn/modules/linear.py", "forward", ""),
    ("/site-packages/torch/optim/adamw.py", "step", ""),
    ("/site-packages/torch/utils/data/dataloader.py", "__next__", ""),
)
_STACKS = ((0, 1, 6, 7), (0, 2, 4, 5), (0, 9, 3), (0, 8), (0, 1, 6, 6, 7), (0, 2, 4, 5, 5))


class Job(NamedTuple):
    """A job whose logs are made up; times in seconds."""

    nodes: int = 4
    ranks: int = 8  # of a node
    seconds: float = 60.0
    step_s: float = 0.2
    workers: int = 2  # of a rank's DataLoader
    gpus: bool = True
    name: str = "bench"
    seed: int = 1
    late: int | None = None  # a rank that reads its data slowly, by a fifth of the step
    begun_unix_s: float = BEGUN_UNIX_S
    stopped_s: Mapping[int, float] = {}

    @property
    def world_size(self) -> int:
        """Ranks of all nodes."""
        return self.nodes * self.ranks


def frame(file: str, function: str, source: str) -> Frame:
    """A frame of ``CODE``."""
    return Frame(file, len(function) * 10, function, source, file.startswith("/job"))


class Rank:
    """One rank of a node."""

    def __init__(self, job: Job, node: int, local: int, boot_s: float) -> None:
        self.job = job
        self.rank = node * job.ranks + local
        self.local = local
        self.pid = ROOT + 1 + local * (1 + job.workers)  # the same on each node
        self.boot_s = boot_s  # what the node's clock read when the job began
        self.is_late = self.rank == job.late
        self.uuid = f"GPU-{self.rank:08x}-0000-0000-0000-000000000000"

    @property
    def worker_pids(self) -> list[int]:
        """Of its DataLoader, by number."""
        return [self.pid + 1 + number for number in range(self.job.workers)]

    def processes(self, ended_s: float | None = None) -> Iterator[Process]:
        """The rank and its workers, at the beginning or at the end."""
        for pid in (self.pid, *self.worker_pids):
            trains = pid == self.pid
            yield Process(
                t=self.boot_s + 0.5 if ended_s is None else ended_s,
                pid=pid,
                ppid=ROOT if trains else self.pid,
                start_unix_s=self.job.begun_unix_s,
                command=["python", "train.py"],
                role="trainer" if trains else "worker",
                markers=True,
                rank=self.rank,
                world_size=self.job.world_size,
                python="3.12.1",
                torch="2.13.0",
                gpu_uuids=[self.uuid] if trains and self.job.gpus else [],
                ended=ended_s is not None,
            )

    def window(self, t: float, second: int, ends: Sequence[float], rng: random.Random) -> Iterator[Record]:
        """One second of it."""
        first, after = bisect_right(ends, second - 1), bisect_right(ends, second)
        yield self._steps(t, ends, first, after)
        yield self._threads(t, self.pid, rng)
        yield from (self._threads(t, pid, rng) for pid in self.worker_pids)
        if self.job.workers and after > first:
            yield self._loader(t, after - first, first=second == int(SET_UP_S) + 1)
        if self.job.gpus:
            yield self._gpu(t, rng)
        if (second + self.local) % 5 == 0:  # the sampler takes the ranks in turn
            yield self._stacks(t, rng)
            if self.job.gpus and after > first:
                yield self._gpu_time(t, rng)
                yield TorchMemory(t=t, pid=self.pid, device=self.local, allocated_bytes=6 << 33, reserved_bytes=7 << 33)

    def _phases(self, total_ns: int) -> list[PhaseTime]:
        shift = _LATE_BY if self.is_late else 0.0
        moved = {"data": shift, "backward": -shift}
        return [PhaseTime(name, int(total_ns * (share + moved.get(name, 0.0)))) for name, share in SHARES]

    def _steps(self, t: float, ends: Sequence[float], first: int, after: int) -> Steps:
        begins = [ends[number - 1] if number else SET_UP_S for number in range(first, after)]
        lengths = [int((end - begin) * 1e9) for begin, end in zip(begins, ends[first:after], strict=True)]
        count, total_ns = len(lengths), sum(lengths)
        if not count:
            return Steps(t=t, pid=self.pid, window_s=1.0, count=0, first_index=first, total_ns=0, phases=[])
        buckets: dict[int, int] = {}
        for length in lengths:
            buckets[length_bucket(length)] = buckets.get(length_bucket(length), 0) + 1
        slowest = max(range(count), key=lengths.__getitem__)
        return Steps(
            t=t,
            pid=self.pid,
            window_s=1.0,
            count=count,
            first_index=first,
            total_ns=total_ns,
            histogram=sorted(buckets.items()),
            phases=self._phases(total_ns),
            slowest=SlowStep(first + slowest, lengths[slowest], self._phases(lengths[slowest])),
            rank_steps=self._rank_steps(t, first, ends[first:after], lengths),
            backwards=count,
            updates=count,
            open_phase="backward",
            open_for_s=0.05,
            gc_ns=0,
        )

    def _rank_steps(self, t: float, first: int, ends: Sequence[float], lengths: Sequence[int]) -> list[RankStep]:
        stride = stride_of(len(lengths), 4)
        return [
            RankStep(first + n, round((t - self.boot_s - end) * 1e6), *self._parts_us(length))
            for n, (end, length) in enumerate(zip(ends, lengths, strict=True))
            if (first + n) % stride == 0
        ]

    def _parts_us(self, length_ns: int) -> Iterator[int]:
        of = {phase.name: phase.total_ns for phase in self._phases(length_ns)}
        return (of.get(name, 0) // 1000 for name in SHARED_PARTS)

    def _threads(self, t: float, pid: int, rng: random.Random) -> Threads:
        names = ("pt_main_thread", "pt_autograd_0", "cuda-EvtHandlr", "pt_nccl_watchdg") if pid == self.pid else ("x",)
        waits = _LATE_BY if self.job.late is not None and not self.is_late else 0.0
        busy = [round(0.99 - waits - 0.01 * rng.random(), 3), *(0.05 for _ in names[1:])]
        rows = [ThreadCpu(pid + 100_000 * at, name, busy[at], "running", 0.001) for at, name in enumerate(names)]
        return Threads(t=t, pid=pid, window_s=1.0, cpu_ratio=1.5, rss_bytes=4 << 30, threads=rows)

    def _stacks(self, t: float, rng: random.Random) -> Stacks:
        code = [2, 2] if self.is_late else [0, 1]
        chosen = [*code, *(rng.randrange(len(_STACKS)) for _ in range(4))]
        rows = [StackCount(self.pid, "MainThread", list(_STACKS[at]), rng.randint(1, 9)) for at in chosen]
        samples = sum(row.count for row in rows)
        return Stacks(t=t, pid=self.pid, window_s=2.0, samples=samples, stacks=rows, cost_cpu_s=0.03)

    def _loader(self, t: float, batches: int, *, first: bool) -> Loader:
        workers = [LoaderWorker(pid, at, batches, 150.0, 5.0, 800.0, 1.0) for at, pid in enumerate(self.worker_pids)]
        facts = LoaderFacts(dataset="Shards", kind="map", workers=self.job.workers, prefetch=2, batch_size=32)
        return Loader(
            t=t,
            pid=self.pid,
            number=0,
            window_s=1.0,
            role="train",
            fetches=batches,
            wait_ns=batches * 10_000_000,
            p95_ns=12_000_000,
            ready_fetches=batches,
            ready_total=batches * 3,
            facts=facts if first else None,
            workers=workers,
        )

    def _gpu(self, t: float, rng: random.Random) -> Gpu:
        return Gpu(
            t=t,
            pid=0,
            index=self.local,
            uuid=self.uuid,
            name="NVIDIA H200",
            util_ratio=0.97,
            sm_ratio=round(rng.uniform(0.7, 0.9), 3),
            tensor_ratio=0.4,
            dram_ratio=0.5,
            memory_used_bytes=60 << 30,
            memory_total_bytes=140 << 30,
            power_w=round(rng.uniform(600, 700), 1),
            temperature_c=60.0,
            sm_clock_mhz=1980,
            pids=[self.pid],
        )

    def _gpu_time(self, t: float, rng: random.Random) -> GpuTime:
        phases = [GpuPhase(phase.name, phase.total_ns, 0, 0) for phase in self._phases(int(2 * self.job.step_s * 1e9))]
        leads = [Lead("backward begin", 2, 900.0, round(rng.uniform(900, 1100), 1), 1200.0, 0)]
        total_ns = sum(phase.span_ns for phase in phases)
        return GpuTime(
            t=t, pid=self.pid, window_s=5.0, device=self.local, steps=2, total_ns=total_ns, phases=phases, leads=leads
        )
