"""Pairs that run on a CPU: the page's code in a program, recorded by ``tuimon run``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import zstandard

from tests.explain_pairs.pairs import Pair, When
from tuimon.records import MachineMemory, Record, Threads
from tuimon.sources.log.reader import read_log

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
LOGS = ROOT / "tests" / "data" / "pairs"
_MARK = "# <- the code"
_SECONDS = {
    "step_time_drift": 40.0,
    "memory_pressure": 40.0,
    "straggler_rank": 14.0,
    "comm_bound": 20.0,
    "hang": 45.0,
    "gc_pauses": 16.0,
}
_OF_THE_MOMENT = ("hang", "gil_contention")
_RANKS = ("straggler_rank", "comm_bound")
#: The memory of the machine that the programs are thought to run on: less than the code before takes.
_MACHINE_BYTES = 850_000_000


def is_recorded(pair: Pair, when: When) -> bool:
    """Whether this side of the pair runs on a CPU."""
    on_gpu = (pair.name, when) == ("compute_bound_cpu_0", "after")
    return (PROGRAMS / f"{pair.name}.py").exists() and not on_gpu


def program(pair: Pair, when: When) -> str:
    """The program's text, with the page's code in it."""
    return (PROGRAMS / f"{pair.name}.py").read_text().replace(_MARK, pair.text(when))


def log_of(pair: Pair, when: When) -> Path:
    """Where its log is, or has to be."""
    parts = program(pair, when) + (PROGRAMS / "course.py").read_text()
    return LOGS / f"{pair.name}.{when}.{hashlib.sha256(parts.encode()).hexdigest()[:12]}.jsonl.zst"


def records_of(pair: Pair, log: Path) -> Iterator[Record]:
    """The log's records; for a lack of memory, as on a machine that has less."""
    own_bytes = 0
    for record in read_log(str(log)):
        if isinstance(record, Threads):
            own_bytes = record.rss_bytes or own_bytes
        if isinstance(record, MachineMemory) and pair.rule == "memory_pressure":
            left = max(0, _MACHINE_BYTES - own_bytes)
            sizes = {"total_bytes": _MACHINE_BYTES, "available_bytes": left}
            yield MachineMemory(t=record.t, pid=0, window_s=record.window_s, **sizes)
        else:
            yield record


def record(pair: Pair, when: When, log: Path) -> None:
    """Run the program and keep its log, without the names of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        script, raw = Path(folder) / "train.py", Path(folder) / "run.jsonl"
        script.write_text(program(pair, when))
        shutil.copy(PROGRAMS / "course.py", folder)
        _run(pair.rule, script, raw)
        text = raw.read_bytes()
        if pair.rule in _OF_THE_MOMENT:
            text = _without_end(text)
    names = {folder: "/home/me", str(ROOT): "/opt/tuimon", sys.prefix: "/usr", sys.base_prefix: "/usr"}
    names |= {
        str(Path(sys.executable).resolve().parents[1]): "/usr",
        f'"host":"{socket.gethostname()}"': '"host":"host"',
    }
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name.encode(), names[name].encode())
    for old in log.parent.glob(f"{pair.name}.{when}.*"):
        old.unlink()
    log.write_bytes(zstandard.ZstdCompressor(level=19).compress(text))


def _run(rule: str, script: Path, log: Path) -> None:
    seconds = _SECONDS.get(rule, 9.0)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if rule in _RANKS else []
    run = [sys.executable, "-m", "tuimon", "run", "--headless", "--no-gpu", "--force", "--log", str(log), "--"]
    process = subprocess.Popen(
        [*run, sys.executable, *launcher, str(script)],
        cwd=script.parent,
        env={**os.environ, "PAIR_SECONDS": str(seconds), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, errors = process.communicate(timeout=seconds + (0 if rule == "hang" else 60))
        if process.returncode and rule != "hang":
            raise RuntimeError(f"{script} failed:\n{errors[-2000:]}")
    except subprocess.TimeoutExpired:
        if rule != "hang":
            raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.1)


def _without_end(text: bytes) -> bytes:
    """Up to two seconds before the run's end: who stands still or holds the GIL is judged while it does."""
    lines = text.splitlines(keepends=True)
    ends_s = [each["t"] for line in lines if (each := msgspec.json.decode(line))["type"] == "exit"]
    return b"".join(line for line in lines if not ends_s or msgspec.json.decode(line)["t"] < ends_s[0] - 2.0)
