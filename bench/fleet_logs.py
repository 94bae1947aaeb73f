"""Logs of a job on many nodes, made up from the project's own records and written by its own writer; seeded.

``python -m bench.fleet_logs FOLDER --ranks 64 --seconds 60`` writes one log a node. All ranks pass each step together,
as in DDP; one rank may be late, nodes may stop.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate

from bench.fleet_ranks import CODE, ROOT, SET_UP_S, Job, Rank, frame
from tuimon.records import Cost, Exit, Frames, Header, MachineMemory, Record
from tuimon.sources.log.writer import LogWriter

COMMAND = ["torchrun", "--nproc-per-node", "8", "--rdzv-id", "4711", "train.py"]


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
    ranks = [Rank(job, node, local, boot_s) for local in range(job.ranks)]
    yield from (process for rank in ranks for process in rank.processes())
    yield Frames(t=boot_s, pid=0, first=0, frames=[frame(*code) for code in CODE])
    for second in range(1, int(until_s) + 1):
        t = boot_s + second + 0.001 * rng.random()
        for rank in ranks:
            yield from rank.window(t, second, ends, rng)
        if second % 5 == 0:
            yield MachineMemory(t=t, pid=0, window_s=5.0, total_bytes=1 << 40, available_bytes=1 << 39)
            yield Cost(t=t, pid=0, cpu_ratio=0.02, sampler_cpu_ratio=0.015, rss_bytes=30_000_000)
    if node not in job.stopped_s:
        t = boot_s + job.seconds + 0.5
        yield from (process for rank in ranks for process in rank.processes(t))
        yield Exit(t=t, pid=ROOT, exit_code=0)


def _header(job: Job, node: int, boot_s: float) -> Header:
    return Header(
        t=boot_s,
        pid=ROOT,
        mode="run",
        command=COMMAND,
        host=f"node{node:03}",
        wall_unix_s=job.begun_unix_s,
        interval_s=1.0,
        cpu_count=96,
        versions={"tuimon": "0", "python": "3.12.1"},
        run=job.name,
        node=node,
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
