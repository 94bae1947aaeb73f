"""Trainings to inject into: of the stand-in for torch, in any Python; what each computes can be compared."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.programs import environment
from tests.pythons import fake_torch
from tests.waiting import until
from tuimon.errors import CannotInject
from tuimon.launch.gdb import gdb_version
from tuimon.launch.inject import inject

GDB = shutil.which("gdb")
needs_gdb = pytest.mark.skipif(GDB is None, reason="no gdb")
#: Otherwise only a thread in a system call is at a safe point, which a program may not have.
writes_all_registers = pytest.mark.skipif(
    GDB is None or (int(gdb_version(GDB).partition(".")[0]) < 14 and "amx" in Path("/proc/cpuinfo").read_text()),
    reason="gdb cannot write the registers of AMX",
)

#: What ``training`` prints at its end, with its error output and exit code, unless it was harmed.
OVER = ("over 9\n", "", 0)
#: Trains until its standard input closes; prints what it has computed, which must be one number a batch.
TRAIN = """
import mmap, os, select, sys, time, torch
file = os.open(sys.argv[1], os.O_RDONLY)
mapped = mmap.mmap(file, 4096, prot=mmap.PROT_READ)  # where torch's own library would be
loader, optimizer = torch.utils.data.DataLoader(list(range(6))), torch.optim.Optimizer()
print("ready", flush=True)
ending = False
while not ending:
    ending = select.select([0], [], [], 0.0)[0]
    for batch in loader:
        torch.autograd.backward(batch)
        optimizer.step()
    {also}
print("over", sum(batch), flush=True)
"""


@contextlib.contextmanager
def training(
    folder: Path, python: str, also: str = "pass", extra: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """One that runs; unless the test ends it, it has to end as it would have by itself."""
    path = fake_torch.written(folder)
    library = folder / "libtorch_python.so"
    library.write_bytes(b"\0" * 4096)
    script = folder / "train.py"
    script.write_text(TRAIN.replace("{also}", also))
    env = environment(None, extra, path=path) | {"TUIMON_RING_DIR": str(folder / "elsewhere")}
    process = subprocess.Popen(
        [python, str(script), str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert process.stdout and process.stdin
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
        if process.poll() is None and not process.stdin.closed:
            assert ended(process) == OVER
    finally:
        process.kill() if process.poll() is None and process.stdin.closed else None
        process.stdin.close() if not process.stdin.closed else None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def ended(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    """What a training says and how it ends when it is asked to end."""
    out, err = process.communicate("end\n")
    return out, err, process.returncode


def refusal(pid: int, **options: Any) -> CannotInject:
    """Why a process cannot be injected into: it says what to do about it."""
    with pytest.raises(CannotInject) as caught:
        inject(pid, **options)
    assert caught.value.hint
    return caught.value


def state(process: subprocess.Popen[str]) -> str:
    """R, S, T ..."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def stopped(process: subprocess.Popen[str]) -> None:
    """Wait until it is."""
    until(lambda: state(process) == "T")
