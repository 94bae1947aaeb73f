"""Loops of known troubles, one turn each."""

from tests.gpu_simulator.machine import MS, US
from tests.gpu_simulator.training import Training


def launch_bound(run: Training) -> None:
    """Many small kernels: the GPU waits for each launch."""
    run.fetch(0.3 * MS, 0.1)
    run.passes((60, 6 * US, 24 * US), (90, 7 * US, 18 * US), (20, 6 * US, 20 * US))
    run.cpu.work(0.1 * MS, 0.1)


def gpu_bound(run: Training) -> None:
    """Large kernels; the loop waits for the step before last, so launches run ahead, never to the limit."""
    stream = run.stream
    run.cpu.wait_until(getattr(run, "before_ns", 0))
    run.before_ns = stream.end_ns  # type: ignore[attr-defined]  # the loop's own event
    run.fetch(0.4 * MS, 0.1)
    run.passes((40, 150 * US), (60, 220 * US), (12, 130 * US))
    run.cpu.work(0.2 * MS, 0.1)


def queue_full(run: Training) -> None:
    """Nothing ever waits, so launches run ahead until the queue is full and the launch itself waits."""
    run.fetch(0.4 * MS, 0.1)
    run.passes((150, 40 * US), (240, 50 * US), (40, 30 * US))
    run.cpu.work(0.1 * MS)


def data_starved(run: Training) -> None:
    """The GPU has long finished when the batch comes."""
    run.fetch(45 * MS, 0.2)
    run.passes((60, 80 * US), (90, 110 * US), (20, 60 * US))
    run.cpu.work(0.2 * MS, 0.1)


def sync_item(run: Training, wait: bool = True) -> None:
    """``loss.item()`` after every step: launches never run ahead over its end; or, without the wait, they do."""
    run.fetch(0.5 * MS, 0.1)
    run.passes((80, 40 * US, 30 * US), (120, 60 * US, 25 * US), (30, 40 * US, 20 * US))
    if wait:
        run.stream.launch(2 * US)
        run.stream.synchronise()
    run.cpu.work(0.3 * MS, 0.1)


def transfer(run: Training) -> None:
    """The batch is copied from pageable memory: the CPU waits for the copy."""
    run.fetch(0.5 * MS, 0.1)
    run.stream.launch(9 * MS, 40 * US)
    run.stream.synchronise()
    run.passes((40, 60 * US), (60, 80 * US), (15, 50 * US))
    run.cpu.work(0.2 * MS, 0.1)


def frees(run: Training) -> None:
    """The allocator gives memory back in every step, which waits for all work of the GPU."""
    run.fetch(0.5 * MS, 0.1)
    for _ in range(3):
        run.kernels(20, 60 * US)
        run.gpus[0].free(0.7 * MS)
    run.backward(lambda: (run.kernels(30, 80 * US), run.gpus[0].free(1 * MS), run.kernels(30, 80 * US)))
    run.step(lambda: run.kernels(15, 50 * US))


def blocking_copy(run: Training) -> None:
    """In forward the CPU waits for a copy on another stream, which waits for what the one before that computes."""
    run.fetch(0.5 * MS, 0.1)
    side = run.gpus[0].stream(1)
    run.kernels(20, 60 * US)
    side.wait(run.stream.record())
    side.launch(6 * MS)
    side.copy(50 * US)
    run.passes((20, 60 * US), (60, 80 * US), (15, 50 * US))


LOOPS = {
    "gpu_bound": gpu_bound,
    "launch_bound": launch_bound,
    "data_starved": data_starved,
    "sync_item": sync_item,
    "queue_full": queue_full,
    "transfer": transfer,
    "frees": frees,
    "blocking_copy": blocking_copy,
}
