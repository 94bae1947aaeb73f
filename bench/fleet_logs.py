"""Logs of a job on many nodes, made up from the project's own records and written by its own writer; seeded.

``python -m bench.fleet_logs FOLDER --ranks 64 --seconds 60`` writes one log a node. All ranks pass each step together,
as in DDP; one rank may be late, clocks may be wrong, nodes may stop.
"""

from __future__ import annotations

import argparse
import os
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from tuimon.records import (
    Cost,
    Exit,
    Frame,
    Frames,
    Gpu,
    GpuPhase,
    GpuTime,
    Header,
    Lead,
    Loader,
    LoaderFacts,
    LoaderWorker,
    MachineMemory,
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
from tuimon.session.ranks.shared_steps import SHARED_PARTS
from tuimon.sources.log.writer import LogWriter
from tuimon.sources.markers.rank_steps import stride_of

BEGUN_UNIX_S = 1.75e9
#: Imports and set-up before the first step.
SET_UP_S = 2.0
COMMAND = ["torchrun", "--nproc-per-node", "8", "--rdzv-id", "4711", "train.py"]
#: What a rank's step is made of: (phase, share). A late rank is longer in data, and waits less in backward.
SHARES = (("data", 0.05), ("forward", 0.27), ("backward", 0.55), ("other", 0.03), ("optimizer", 0.10))
#: By how much of the step a late rank is late: the others wait as long in backward, without CPU.
_LATE_BY = 0.2
_CODE = (
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
    clocks_ahead_s: Mapping[int, float] = {}
    stopped_s: Mapping[int, float] = {}

    @property
    def world_size(self) -> int:
        """Ranks of all nodes."""
        return self.nodes * self.ranks


def write(folder: str, job: Job) -> list[str]:
    """Write the logs of all nodes; their paths."""
    ends = step_ends(job)
    return [_write(folder, job, node, ends) for node in range(job.nodes)]


def step_ends(job: Job) -> list[float]:
    """When each step ends, on all ranks, from the start of the job on."""
    rng = random.Random(job.seed)
    lengths = (job.step_s * rng.uniform(0.9, 1.1) for _ in range(int(job.seconds / job.step_s) + 1))
    return [end for end in accumulate(lengths, initial=SET_UP_S) if end < job.seconds][1:]


def records_of(job: Job, node: int, ends: Sequence[float]) -> Iterator[Record]:
    """What tuimon records on one node, in order."""
    rng = random.Random(f"{job.seed}-{node}")
    boot_s = rng.uniform(1e3, 1e6)  # each node's monotonic clock has a zero of its own
    until_s = job.stopped_s.get(node, job.seconds)
    yield _header(job, node, boot_s)
    ranks = [_Rank(job, node, local, boot_s) for local in range(job.ranks)]
    yield from (process for rank in ranks for process in rank.processes())
    yield Frames(t=boot_s, pid=0, first=0, frames=[_frame(*code) for code in _CODE])
    for second in range(1, int(until_s) + 1):
        t = boot_s + second + 0.001 * rng.random()
        for rank in ranks:
            yield from rank.window(t, second, ends, rng)
        if second % 5 == 0:
            yield MachineMemory(t=t, pid=0, window_s=5.0, total_bytes=1 << 40, available_bytes=1 << 39)
            yield Cost(t=t, pid=0, window_s=5.0, cpu_ratio=0.02, sampler_cpu_ratio=0.015, rss_bytes=30_000_000)
    if node not in job.stopped_s:
        t = boot_s + job.seconds + 0.5
        yield from (process for rank in ranks for process in rank.processes(t))
        yield Exit(t=t, pid=_ROOT, exit_code=0)


_ROOT = 1000


def _header(job: Job, node: int, boot_s: float) -> Header:
    return Header(
        t=boot_s,
        pid=_ROOT,
        mode="run",
        command=COMMAND,
        host=f"node{node:03}",
        wall_unix_s=job.begun_unix_s + job.clocks_ahead_s.get(node, 0.0),
        interval_s=1.0,
        cpu_count=96,
        versions={"tuimon": "0", "python": "3.12.1"},
        run=job.name,
        node=node,
    )


def _frame(file: str, function: str, source: str) -> Frame:
    return Frame(file, len(function) * 10, function, source, file.startswith("/job"))


class _Rank:
    """One rank of a node."""

    def __init__(self, job: Job, node: int, local: int, boot_s: float) -> None:
        self.job = job
        self.rank = node * job.ranks + local
        self.local = local
        self.pid = _ROOT + 1 + local * (1 + job.workers)  # the same on each node
        self.boot_s = boot_s
        self.is_late = self.rank == job.late
        self.uuid = f"GPU-{self.rank:08x}-0000-0000-0000-000000000000"

    @property
    def worker_pids(self) -> list[int]:
        return [self.pid + 1 + number for number in range(self.job.workers)]

    def processes(self, ended_s: float | None = None) -> Iterator[Process]:
        """The rank and its workers, at the beginning or at the end."""
        for pid in (self.pid, *self.worker_pids):
            trains = pid == self.pid
            yield Process(
                t=self.boot_s + 0.5 if ended_s is None else ended_s,
                pid=pid,
                ppid=_ROOT if trains else self.pid,
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
        ordered = sorted(lengths)
        return Steps(
            t=t,
            pid=self.pid,
            window_s=1.0,
            count=count,
            first_index=first,
            total_ns=total_ns,
            min_ns=ordered[0],
            median_ns=ordered[count // 2],
            p95_ns=ordered[-1],
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
            RankStep(first + n, round((t - end) * 1e6), *self._parts_us(length))
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
        return Stacks(
            t=t, pid=self.pid, window_s=2.0, rate_hz=samples / 2, samples=samples, stacks=rows, cost_cpu_s=0.03
        )

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


class NodeWriter:
    """Writes the log of a node as far as the job has got."""

    def __init__(self, folder: str, job: Job, node: int, ends: Sequence[float]) -> None:
        self.path = f"{folder}/tuimon-{job.name}-node{node:03}.jsonl"
        self._log = LogWriter(self.path, force=True)
        self._records = records_of(job, node, ends)
        self._next: Record | None = next(self._records)
        self._boot_s = self._next.t if self._next is not None else 0.0

    def write_until(self, seconds: float) -> None:
        """Write what is recorded in so many seconds from the start of the job on."""
        written = 0
        while self._next is not None and self._next.t - self._boot_s <= seconds:
            self._log.add_record(self._next)
            written += 1
            if written % 1000 == 0:  # more are not kept
                self._log.flush(self._next.t)
            self._next = next(self._records, None)
        self._log.flush(self._boot_s + seconds)

    def close(self) -> None:
        """Write what is left and close the file."""
        self._log.close()


def _write(folder: str, job: Job, node: int, ends: Sequence[float]) -> str:
    writer = NodeWriter(folder, job, node, ends)
    writer.write_until(job.seconds + 1.0)
    writer.close()
    return writer.path


def main() -> None:
    """Write the logs of a job."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet_logs", description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--late", type=int, help="this rank is late")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    write(
        args.folder, Job(nodes=max(1, args.ranks // 8), ranks=min(8, args.ranks), seconds=args.seconds, late=args.late)
    )


if __name__ == "__main__":
    main()
