"""Runs a case below ``tuimon run --headless`` and waits for what ``--on-hang`` is given, or for the end."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.hang_truth.cases import Case

#: The step at which something goes wrong.
AT = 40
#: A run that has neither told nor ended by then is over (s).
LIMIT_S = 240.0
#: After the command was run, nothing more is waited for; where nothing was told, this long after the last step (s).
UNTOLD_S = 75.0


class Result(NamedTuple):
    """What came of a case."""

    told: dict[str, Any] | None  # the finding on the command's stdin
    told_after_s: float | None  # since the last step of any rank
    exit_code: int | None  # None: it hung, and was ended here
    steps: int  # the last step of any rank


def run_case(case: Case, ranks: int, folder: Path, in_thread: bool = False) -> Result:
    """Run it in a folder of its own; ``in_thread``: its ranks train in another thread than the main one."""
    os.mkfifo(folder / "fifo")
    told, log = folder / "told.json", folder / "log.jsonl"
    words = [sys.executable, "-m", "tuimon", "run", "--headless", "--no-gpu", "--log", str(log)]
    words += ["--on-hang", f"tee {shlex.quote(str(told))}", "--", *_launcher(case, ranks, folder)]
    with (folder / "output").open("wb") as output:
        environment = os.environ | ({"HANG_TRUTH_IN_THREAD": "1"} if in_thread else {})
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    until_s = time.monotonic() + LIMIT_S
    try:
        while process.poll() is None and time.monotonic() < until_s and _told(told) is None:
            step_s = last_step(folder)[1]
            if case.hangs and step_s is not None and time.monotonic() - step_s > UNTOLD_S:
                break
            time.sleep(0.2)
        finding, exit_code = _told(told), process.poll()
        step, step_s = last_step(folder)
        after_s = None
        if finding is not None and step_s is not None:
            after_s = told.stat().st_mtime - (time.time() - time.monotonic()) - step_s
        return Result(finding, after_s, exit_code, step)
    finally:
        _end(process, log)


def _launcher(case: Case, ranks: int, folder: Path) -> list[str]:
    script = [str(case.script), case.fault, str(AT), str(folder)]
    if case.is_alone:
        return [sys.executable, *script]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if case.by_shell:
        env = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE={ranks}"
        each = shlex.join([sys.executable, *script])
        return ["sh", "-c", f"for rank in $(seq 0 {ranks - 1}); do RANK=$rank {env} {each} & done; wait"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    return [*torchrun, "--master-port", str(port), "--max-restarts", str(case.restarts), *script]


def last_step(folder: Path) -> tuple[int, float | None]:
    """The last step that any rank has ended, and when (s, monotonic)."""
    found = []
    for path in folder.glob("rank-*"):
        with contextlib.suppress(ValueError, OSError):  # it is being written
            step, at_s = path.read_text().split()
            found.append((int(step), float(at_s)))
    return (max(step for step, _ in found), max(at_s for _, at_s in found)) if found else (0, None)


def _told(path: Path) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return told


def _end(process: subprocess.Popen[bytes], log: Path) -> None:
    """End tuimon, and what is left of the processes that its log names."""
    pids = set()
    for line in log.read_text().splitlines() if log.exists() else ():
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if record.get("type") == "process":
                (pids.discard if record.get("ended") else pids.add)(record["pid"])
    if process.poll() is not None:
        pids = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
