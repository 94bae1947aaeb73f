"""Several simulated ranks as a whole session: markers and GPU times, with samples and counters that belong to them."""

from functools import cache, partial

from msgspec import structs

from tests.diagnosis.gpu import FORWARD, LINES, USUAL, gpu
from tests.gpu_simulator.machine import MS
from tests.gpu_simulator.ranks import Ranks, gathers, small_kernels, step, two_losses
from tests.gpu_simulator.sessions import UUID
from tests.session.records import frames, stacks, threads
from tuimon.records import Steps

SECONDS = 20.0
GATHER = 90
GATHERS = frames(("/lib/site-packages/torch/distributed/distributed_c10d.py", 9, "all_gather"), first=GATHER)


def uneven(rank):
    """Batches of very different length, in each step others."""
    length = rank.cpu.random.choice((0.5, 1.0, 2.0))
    return step(rank, forward_ns=int(6 * length * MS), backward_ns=int(12 * length * MS))


def one_late(rank):
    """The data of rank 1 are slow."""
    return step(rank, fetch_ns=(25 if rank.number == 1 else 0.4) * MS)


def one_computes(rank):
    """Rank 1 has more to compute in backward; all come out of it together."""
    return step(rank, backward_ns=(18 if rank.number == 1 else 3) * MS)


def one_gathers_late(rank):
    """Rank 1 computes more between the gathers, which hold the others up in forward as well."""
    more = 3 if rank.number == 1 else 1
    return gathers(rank, forward_ns=3 * more * MS, backward_ns=6 * more * MS)


LOOPS = {
    "accumulates": (partial(step, passes=4), 14 * MS),
    "accumulates, in step": (partial(step, passes=4), 100_000),
    "exchanges each pass": (partial(step, passes=4, no_sync=False, collective_each_ns=6 * MS), 6 * MS),
    "one pass": (step, 3 * MS),
    "long exchange": (step, 30 * MS),
    "uneven": (uneven, MS),
    "one late": (one_late, MS),
    "one computes": (one_computes, 100_000),
    "one gathers late": (one_gathers_late, 100_000),
    "apart": (uneven, None),
    "no loader": (partial(step, fetch_ns=None), 3 * MS),
    "two losses": (two_losses, MS),
    "small kernels": (small_kernels, 3 * MS),
}


@cache
def records(kind, world_size=3):
    """The ranks after they have run, and all records of their session."""
    ranks = Ranks(*LOOPS[kind][:1], world_size, LOOPS[kind][1])
    found, numbers = [LINES, GATHERS], {rank.ring.pid: rank.number for rank in ranks.ranks}
    for record in ranks.run(SECONDS):
        found.append(record)
        if isinstance(record, Steps):
            number = numbers[record.pid]
            busy, active = round(1.0 - ranks.idle(number), 2), ranks.sm_ratio(number)
            found.append(structs.replace(gpu(record.t, busy, sm_ratio=active), uuid=f"{UUID}{number}"))
    end_s = found[-1].t
    samples = [*USUAL, ([FORWARD, GATHER], 9)] if kind == "one gathers late" else USUAL
    for pid in numbers:
        found.append(stacks(end_s, *((list(ids), count) for ids, count in samples), pid=pid))
        found.append(threads(end_s, (pid, "python", 0.9, "running", 0.0), pid=pid, cpu_ratio=0.9))
    return ranks, found
