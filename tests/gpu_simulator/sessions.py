"""Whole sessions of simulated trainings, as records: what rules and views are tried on."""

from functools import cache

from tests.gpu_simulator import machine
from tests.gpu_simulator.loops import LOOPS
from tests.gpu_simulator.machine import Hardware
from tests.gpu_simulator.training import PID, Training
from tests.session.records import header, process
from tuimon.records import Record

#: Of the simulated GPU.
UUID = "GPU-00000000-0000-0000-0000-000000000001"


def simulated(kind: str, seconds: float = 20.0) -> tuple[Training, tuple[Record, ...]]:
    """A loop of ``loops.LOOPS`` after it has run for so long, and its records."""
    return _simulated(kind, seconds, machine.current)


@cache
def _simulated(kind: str, seconds: float, of: Hardware) -> tuple[Training, tuple[Record, ...]]:
    training = Training(drift_ppm=20.0)
    begun_s = training.cpu.now_ns / 1e9
    first = [header(pid=PID, t=begun_s), process(pid=PID, t=begun_s, torch="2.13.0+cu130", gpu_uuids=[UUID])]
    return training, (*first, *training.run(LOOPS[kind], seconds))


def records(kind: str, seconds: float = 20.0) -> list[Record]:
    """``kind``: "gpu_bound", "launch_bound", "data_starved", "sync_item", "queue_full" or "transfer".

    Header, Process, Steps, GpuTime and TorchMemory of process ``training.PID``, as the markers source makes them.
    """
    return list(simulated(kind, seconds)[1])
