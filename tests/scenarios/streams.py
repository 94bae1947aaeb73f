"""Causes that need a GPU: simulated trainings as logs, with the samples and counters that go with their CPU time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from tests.diagnosis.gpu import (
    BACKWARD,
    FETCH,
    FORWARD,
    IN_BACKWARD,
    IN_FETCH,
    IN_STEP,
    ITEM,
    LINES,
    MAKE,
    MODULE,
    SAVE,
    STEP,
    TO_DEVICE,
    beside_steps,
)
from tests.gpu_simulator import loops
from tests.gpu_simulator.machine import MS, US
from tests.gpu_simulator.sessions import UUID
from tests.gpu_simulator.training import PID, Training
from tests.session.records import header, process
from tests.truth.judging import Judgement, judge
from tests.truth.programs import Program
from tests.truth.running import Outcome, Truth
from tuimon.records import Record, Steps, Throttle

Step = Callable[[Training], None]

SECONDS = 20.0
#: Where the program's lines are: frames of the samples.
_FETCHING, _FORWARD, _BACKWARD = [FETCH, IN_FETCH], [FORWARD, MODULE], [BACKWARD, IN_BACKWARD]
_OPTIMIZER, _WAITING, _COPYING, _SAVING = [STEP, IN_STEP], [ITEM], [TO_DEVICE], [SAVE]
_MAKING = [MAKE]


@dataclass(frozen=True)
class Stream:
    """A simulated training and its truth."""

    name: str
    step: Step
    samples: tuple[tuple[list[int], int], ...]  # stack, share of the CPU's time in percent
    rule: str | None = None  # None: healthy
    line: int | None = None
    fixed: Step | None = None
    cpu: float = 0.99
    autograd: float = 0.0
    throttled: tuple[Throttle, ...] = ()
    copied_per_s: float = 1e6  # bytes, as PCIe's counters show
    settles_s: float = 10.0  # the verdict has to be right by then
    wrong_because: str = ""  # tuimon does not get it right yet

    def program(self, measured: float | None = None) -> Program:
        """Its label, with what the fix gains in the simulator."""
        rules = (self.rule,) if self.rule is not None else ()
        blamed = frozenset([self.line] if self.line is not None else [])
        return Program(self.name, Path("train.py"), rules, blamed, measured=measured)


# -- loops that the simulator does not have


def _checkpoints(run: Training, ms: float = 9) -> None:
    """Every step is saved while the GPU has nothing to do."""
    loops.sync_item(run)
    run.cpu.work(ms * MS, 0.1)


def _item(run: Training, wait: bool = True) -> None:
    """What the CPU does after ``item()`` leaves the GPU without work."""
    loops.sync_item(run, wait)
    run.cpu.work(1 * MS, 0.1)


def _covered_loader(run: Training) -> None:
    """The fetch takes long, but launches are further ahead."""
    run.fetch(9 * MS, 0.2)
    run.passes((40, 150 * US), (60, 220 * US), (12, 130 * US))


def _fields(run: Training, pinned: bool = False) -> None:
    """The twelve fields of a batch are copied one after another, and the CPU waits for each."""
    run.fetch(0.5 * MS, 0.1)
    for _ in range(12):
        _copy(run, 0.7 * MS, pinned)
    _small_model(run)


def _copies_by_hand(run: Training, pinned: bool = False) -> None:
    """No DataLoader: rows that lie ready are copied."""
    run.cpu.work(0.2 * MS, 0.1)
    _copy(run, 7 * MS, pinned)
    _small_model(run)


def _copy(run: Training, pageable_ns: float, pinned: bool) -> None:
    """From ordinary memory, which the CPU waits for; from pinned memory it takes a seventh, as on an H100."""
    run.stream.launch(int(pageable_ns / 7 if pinned else pageable_ns), 30 * US)
    if not pinned:
        run.stream.synchronise()


def _small_model(run: Training) -> None:
    run.passes((40, 60 * US), (60, 80 * US), (15, 50 * US))


def _given_back(run: Training) -> None:
    """Memory is nearly full: for each part of the model the allocator gives some back, and waits for the GPU."""

    def parts(number: int, kernel_ns: float) -> None:
        for _ in range(number):
            run.kernels(20, kernel_ns)
            run.gpus[0].free(1 * MS)

    run.fetch(0.5 * MS, 0.1)
    parts(3, 60 * US)
    run.backward(lambda: parts(3, 80 * US))
    run.step(lambda: parts(1, 40 * US))
    allocated, reserved, *_, frees = (*run.device.allocator, 0)[:5]
    run.device.allocator = (allocated, reserved, 0, 0, frees + 7)


def _kept(run: Training) -> None:
    """Memory that the allocator keeps."""
    run.fetch(0.5 * MS, 0.1)
    _small_model(run)


def _by_hand(run: Training, prepare_ns: float = 4 * MS, item: bool = False) -> None:
    """No DataLoader: batches are made by hand, for which launches that run ahead leave time enough.

    After ``item()`` nothing is ahead: the GPU has nothing to do while the next batch is made, if that takes long; a
    model that is large does not notice it where there is nothing to prepare.
    """
    run.cpu.work(prepare_ns, 0.1)
    run.passes((40, 100 * US), (60, 130 * US), (12, 60 * US))
    if item:
        run.stream.launch(2 * US)
        run.stream.synchronise()


# -- the same loops without what holds them up


def _fused(run: Training) -> None:
    """The same work in a tenth of the launches."""
    run.fetch(0.3 * MS, 0.1)
    run.passes((12, 40 * US, 12 * US), (18, 40 * US, 9 * US), (4, 30 * US, 10 * US))
    run.cpu.work(0.1 * MS, 0.1)


def _copied_ahead(run: Training) -> None:
    """The next batch is copied on a stream of its own, in half of the time, while the GPU computes."""
    run.fetch(0.5 * MS, 0.1)
    side = run.gpus[0].stream(1)
    run.stream.wait(side.record())
    side.launch(int(4.5 * MS), 10 * US)
    run.passes((40, 60 * US), (60, 80 * US), (15, 50 * US))
    run.cpu.work(0.2 * MS, 0.1)


_USUAL = ((_FORWARD, 37), (_BACKWARD, 42), (_OPTIMIZER, 11))
_HOT = (Throttle("thermal (hardware)", 0.7),)

STREAMS = (
    Stream("small kernels", loops.launch_bound, (*_USUAL, (_FETCHING, 8)), "launch_bound", 42, _fused),
    Stream("small kernels and item()", loops.launch_bound, (*_USUAL, (_WAITING, 8)), "launch_bound", 42),
    Stream("item() every step", loops.sync_item, ((_FORWARD, 19), (_BACKWARD, 24), (_OPTIMIZER, 5), (_WAITING, 46),
           (_FETCHING, 4)), "sync_point", 45, partial(loops.sync_item, wait=False),
           wrong_because="less than its 1.08x is certain"),
    Stream("item() every step, work after it", _item, ((_FORWARD, 18), (_BACKWARD, 22), (_OPTIMIZER, 5), (_WAITING, 43),
           (_FETCHING, 4), (_MAKING, 7)), "sync_point", 45, partial(_item, wait=False)),
    Stream("starved by its loader", loops.data_starved, ((_FETCHING, 97), (_FORWARD, 1), (_BACKWARD, 2)),
           "input_bound", 40, cpu=0.1),
    Stream("pageable copies", loops.transfer, ((_COPYING, 92), (_BACKWARD, 3), (_FETCHING, 3)),
           "transfer_bound", 41, _copied_ahead, copied_per_s=2e9),
    Stream("copies field by field", _fields, ((_COPYING, 90), (_BACKWARD, 5), (_FETCHING, 4)),
           "transfer_bound", 41, partial(_fields, pinned=True), copied_per_s=2e9),
    Stream("copies by hand", _copies_by_hand, ((_COPYING, 90), (_BACKWARD, 5), (_MAKING, 2)),
           "transfer_bound", 41, partial(_copies_by_hand, pinned=True), copied_per_s=2e9),
    Stream("memory given back", _given_back, ((_FORWARD, 42), (_BACKWARD, 44), (_OPTIMIZER, 6), (_FETCHING, 5)),
           "launch_bound/allocator", fixed=_kept,
           settles_s=14.0),  # in the first 10 s the cache fills: what the allocator gives back then does not count
    Stream("checkpoint every step", _checkpoints, ((_SAVING, 41), (_WAITING, 27), (_FORWARD, 11), (_BACKWARD, 14),
           (_OPTIMIZER, 3), (_FETCHING, 2)), "side_work", 47, loops.sync_item),
    Stream("long checkpoint every step", partial(_checkpoints, ms=20), ((_SAVING, 61), (_WAITING, 18), (_FORWARD, 7),
           (_BACKWARD, 9), (_OPTIMIZER, 2), (_FETCHING, 2)), "side_work", 47, loops.sync_item),
    Stream("item() before making a batch", partial(_by_hand, item=True), ((_WAITING, 68), (_MAKING, 24), (_FORWARD, 2),
           (_BACKWARD, 4)), "sync_point", 45, _by_hand),
    Stream("too hot", loops.gpu_bound, ((_WAITING, 94), (_BACKWARD, 2)), "throttled", throttled=_HOT),
    Stream("waits every step, GPU-bound", loops.gpu_bound, ((_WAITING, 94), (_FORWARD, 1), (_BACKWARD, 2))),
    Stream("queue full", loops.queue_full, ((_FORWARD, 34), (_BACKWARD, 53), (_OPTIMIZER, 10)), cpu=0.5, autograd=0.5),
    Stream("item() every step, large model", partial(_by_hand, prepare_ns=0.1 * MS, item=True),
           ((_WAITING, 93), (_FORWARD, 3), (_BACKWARD, 4))),
    Stream("slow loader, covered", _covered_loader, ((_FETCHING, 45), (_FORWARD, 20), (_BACKWARD, 30)), cpu=0.6),
)  # fmt: skip


def simulate(step: Step, seconds: float) -> tuple[list[Record], float, float]:
    """A training's records, ms a step, and the share of time in which its GPU works."""
    training = Training(drift_ppm=20.0)
    steps = 0
    begun_ns = training.cpu.now_ns

    def counted(run: Training) -> None:
        nonlocal steps
        steps += 1
        step(run)

    records = training.run(counted, seconds)
    span_ns = training.cpu.now_ns - begun_ns
    return records, span_ns / steps / 1e6, min(1.0, training.stream.busy_ns / span_ns)


def write(stream: Stream, log: Path, seconds: float = SECONDS) -> Outcome:
    """The stream as a log, as it would have been recorded."""
    simulated, step_ms, busy = simulate(stream.step, seconds)
    begun_s = simulated[0].t - 1.0
    mhz = 1400 if stream.throttled else 1980
    figures = {"throttled": list(stream.throttled), "sm_clock_mhz": mhz, "sm_clock_max_mhz": 1980}
    figures |= {"pcie_rx_bytes_per_s": stream.copied_per_s, "pcie_tx_bytes_per_s": 0.0}
    records = [
        header(pid=PID, cpu_count=8, t=begun_s),
        process(PID, t=begun_s, torch="2.13.0+cu130", gpu_uuids=[UUID]),
        LINES,
        *beside_steps(
            *(simulated, round(busy, 3), *stream.samples),
            cpu=stream.cpu, autograd=stream.autograd, samples=100, **figures,
        ),
    ]  # fmt: skip
    log.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    steps = sum(record.count for record in simulated if isinstance(record, Steps))
    return Outcome(Truth(steps, step_ms, {}), log, 0.0)


def judged(stream: Stream, folder: Path, seconds: float = SECONDS) -> Judgement:
    """What tuimon reports of a stream, and what the fix gains in the simulator."""
    outcome = write(stream, folder / f"{stream.name.replace(' ', '_')}.jsonl", seconds)
    fixed_ms = simulate(stream.fixed, seconds / 4)[1] if stream.fixed is not None else None
    return judge(stream.program(outcome.truth.wall_ms / fixed_ms if fixed_ms else None), outcome)
