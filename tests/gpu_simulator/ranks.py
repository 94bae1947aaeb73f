"""Several ranks in simulated time, each with a GPU of its own, which wait for one another in collectives.

A loop is a generator: it yields when its GPU arrives at a collective, and is sent when that has ended.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import NamedTuple

from tests.gpu_simulator.machine import MS, SECOND, US
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID, Training
from tests.session.records import header, process
from tuimon.records import Record

Loop = Callable[["Rank"], Generator[int, int, None]]


class Exchanged(NamedTuple):
    """The truth of one collective on one rank, in ns: what it waited for later ranks, and what it took all ranks."""

    waited_ns: int
    own_ns: int


class Rank(Training):
    """One rank; loops call ``exchange`` inside a backward pass."""

    def __init__(self, number: int, world_size: int) -> None:
        super().__init__(20.0 * (number - 1), seed=number + 1, pid=PID + 100 * number, world_size=world_size)
        self.number = number
        self.exchanged: list[Exchanged] = []
        self.beside_ns = 0  # work of the main stream while collectives run on another one
        self.steps = 0
        self.before_ns = 0

    def next_step(self) -> None:
        """The loop's own event: launches never run further ahead than the step before last."""
        self.cpu.wait_until(self.before_ns)
        self.before_ns = self.stream.end_ns


class Ranks:
    """Ranks that go through their loops together."""

    def __init__(self, loop: Loop, world_size: int, collective_ns: int | None) -> None:
        """``collective_ns``: how long a collective takes from when the last rank has come; None: there are none."""
        self.ranks = [Rank(number, world_size) for number in range(world_size)]
        self.loop = loop
        self.collective_ns = collective_ns

    def run(self, seconds: float) -> list[Record]:
        """Repeat the loop for so long; returns the records of all ranks in their order."""
        end_ns = self.ranks[0].cpu.now_ns + int(seconds * SECOND)
        facts = [
            process(
                rank.ring.pid, t=rank.cpu.now_ns / 1e9, torch="2.13.0+cu130", rank=rank.number,
                world_size=len(self.ranks), gpu_uuids=[f"{UUID}{rank.number}"],
            )
            for rank in self.ranks
        ]  # fmt: skip
        first = header(pid=PID, cpu_count=8, t=self.ranks[0].cpu.now_ns / 1e9)
        while any(rank.cpu.now_ns < end_ns for rank in self.ranks):
            self._step()
        for rank in self.ranks:
            rank.look()
        records = [record for rank in self.ranks for record in rank.records]
        return [first, *facts, *sorted(records, key=lambda record: record.t)]

    def _step(self) -> None:
        loops = [self.loop(rank) for rank in self.ranks]
        arrived_ns = [next(loop) for loop in loops]
        while arrived_ns:
            last_ns, again_ns = max(arrived_ns), []
            for rank, loop, at_ns in zip(self.ranks, loops, arrived_ns, strict=True):
                ended_ns = at_ns if self.collective_ns is None else last_ns + self.collective_ns
                rank.exchanged.append(Exchanged(max(0, last_ns - at_ns), ended_ns - at_ns))
                with suppress(StopIteration):
                    again_ns.append(loop.send(ended_ns))
            arrived_ns = again_ns
        for rank in self.ranks:
            rank.steps += 1
            rank.look_if_due()

    @property
    def step_ns(self) -> float:
        """Mean length of a step on the GPU."""
        rank = self.ranks[0]
        return rank.truth.total_ns / rank.steps

    def waited(self, number: int) -> float:
        """Share of its time that a rank's GPU waits for later ranks."""
        return sum(found.waited_ns for found in self.ranks[number].exchanged) / self.ranks[number].truth.total_ns

    def idle(self, number: int) -> float:
        """Share of its time that a rank's GPU has no work, collectives included."""
        truth = self.ranks[number].truth
        idle_ns = truth.idle_ns.total() + self.ranks[number].beside_ns
        return idle_ns / truth.total_ns - self.exchanging(number)

    def sm_ratio(self, number: int) -> float:
        """Share of a GPU's multiprocessors that are busy: its own kernels fill most of them, a collective few."""
        rank = self.ranks[number]
        exchanging = self.exchanging(number) - rank.beside_ns / rank.truth.total_ns
        return 0.8 * (1.0 - self.idle(number) - exchanging) + 0.1 * exchanging

    def exchanging(self, number: int) -> float:
        """Share of its time that a rank's GPU spends in collectives, waiting included."""
        return sum(found.own_ns for found in self.ranks[number].exchanged) / self.ranks[number].truth.total_ns


def step(
    rank: Rank, fetch_ns: float | None = 0.4 * MS, forward_ns: int = 6 * MS, backward_ns: int = 12 * MS,
    passes: int = 1, no_sync: bool = True, collective_each_ns: int = 0,
) -> Generator[int, int, None]:  # fmt: skip
    """A step of DistributedDataParallel: its collective is over when the backward pass ends.

    ``fetch_ns``: None without a DataLoader. ``passes``: micro-batches. Without ``no_sync`` each exchanges gradients, in
    a collective that takes this long.
    """
    rank.next_step()
    for number in range(passes):
        if fetch_ns is not None:
            rank.fetch(fetch_ns, 0.1)
        rank.kernels(30, forward_ns // 30)
        rank.begin_backward()
        rank.kernels(40, backward_ns // 40)
        if number + 1 == passes:
            ended_ns = yield rank.stream.reached_ns()
            rank.stream.wait(ended_ns)
        elif not no_sync:
            rank.stream.launch(collective_each_ns)
        rank.end_backward()
    rank.step(lambda: rank.kernels(8, 100 * US))
    rank.cpu.work(0.2 * MS, 0.1)


def gathers(rank: Rank, forward_ns: int, backward_ns: int) -> Generator[int, int, None]:
    """A step of FullyShardedDataParallel: forward waits for parameters, backward for these and for gradients."""
    rank.next_step()
    rank.fetch(0.4 * MS, 0.1)
    for work_ns in (forward_ns // 2, forward_ns // 2, None, backward_ns // 2, backward_ns // 2):
        if work_ns is None:
            rank.begin_backward()
        else:
            rank.kernels(20, work_ns // 20)
            rank.stream.wait((yield rank.stream.reached_ns()))
    rank.end_backward()
    rank.step(lambda: rank.kernels(8, 100 * US))


def two_losses(rank: Rank) -> Generator[int, int, None]:
    """One forward pass and two backward passes, the second of which exchanges gradients."""
    rank.next_step()
    rank.fetch(0.4 * MS, 0.1)
    rank.kernels(30, 200 * US)
    for exchanges in (False, True):
        rank.begin_backward()
        rank.kernels(40, 300 * US)
        if exchanges:
            rank.stream.wait((yield rank.stream.reached_ns()))
        rank.end_backward()
    rank.step(lambda: rank.kernels(8, 100 * US))


def small_kernels(rank: Rank) -> Generator[int, int, None]:
    """A step that launches set the pace of; its collective runs on another stream while backward goes on."""
    rank.next_step()
    rank.fetch(0.4 * MS, 0.1)
    rank.kernels(60, 4 * US, 20 * US)
    rank.begin_backward()
    rank.kernels(100, 4 * US, 20 * US)
    ended_ns = yield rank.stream.reached_ns()
    busy_ns = rank.stream.busy_ns
    rank.kernels(100, 4 * US, 20 * US)
    rank.beside_ns += rank.stream.busy_ns - busy_ns
    rank.stream.wait(ended_ns)
    rank.end_backward()
    rank.step(lambda: rank.kernels(8, 20 * US))
