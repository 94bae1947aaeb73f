"""Planted hangs of ranks, and long pauses that are none: what ``--on-hang`` is told."""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.truth.kind import Column, Kind
from tests.truth.running import kept, started, under_tuimon

TRAINING = Path(__file__).with_name("trainings") / "hang.py"
#: The step at which something goes wrong.
AT = 40
#: A hang must be told this soon after the last step (s).
SOON_S = 25.0
#: A run that has neither told nor ended by then is over (s).
LIMIT_S = 240.0
#: If nothing was told so long after the last step, nothing more is waited for (s).
UNTOLD_S = 75.0


class Case(NamedTuple):
    """One fault of a training, and how it ends."""

    fault: str
    hangs: bool = True
    exit_code: int | None = 0  # of a run that does not hang; None: not 0
    by_shell: bool = False  # a shell starts the ranks and waits for all, instead of torchrun
    restarts: int = 0
    ranks: int = 2

    @property
    def name(self) -> str:
        return f"{self.fault}-{self.ranks}"

    def command(self, folder: Path) -> list[str]:
        script = [sys.executable, str(TRAINING), self.fault, str(AT), str(folder)]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        if self.by_shell:
            env = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} WORLD_SIZE={self.ranks}"
            each = f"for rank in $(seq 0 {self.ranks - 1}); do RANK=$rank {env} {shlex.join(script)} & done; wait"
            return ["sh", "-c", each]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks)]
        return [*torchrun, "--master-port", str(port), "--max-restarts", str(self.restarts), *script[1:]]


class Result(NamedTuple):
    """The end of a case."""

    told: dict[str, Any] | None  # the finding on the command's stdin
    told_after_s: float | None  # since the last step of any rank, or since the start if there was none
    exit_code: int | None  # None: it hung, and was ended here
    steps: int  # the last step of any rank


class Verdict(NamedTuple):
    """One row of the table."""

    case: Case
    is_right: bool
    why: str
    told_after_s: float | None = None
    odd_ranks: str | None = None
    line: int | None = None


class Hang(Kind[Case, Verdict]):
    """Planted hangs and healthy pauses: is a hang told soon, with the odd rank and its line? (1 hour)"""

    columns = (
        Column("fault", 26, lambda row: row.case.name),
        Column("told after", -10, lambda row: None if row.told_after_s is None else f"{row.told_after_s:.1f} s"),
        Column("odd rank", -8, lambda row: row.odd_ranks),
        Column("line", -5, lambda row: row.line),
        Column("verdict", 60, lambda row: row.why),
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--ranks", default="2,4,8", help="numbers of ranks (default %(default)s)")

    def cases(self, args: argparse.Namespace) -> Sequence[Case]:
        return [case._replace(ranks=ranks) for ranks in map(int, args.ranks.split(",")) for case in CASES]

    def judged(self, case: Case, args: argparse.Namespace) -> Iterator[Verdict]:
        facts = kept(args.folder / f"{case.name}.json", lambda: run_case(case, args.folder / case.name)._asdict())
        yield judged(case, Result(**facts))

    def totals(self, rows: Sequence[Verdict]) -> list[str]:
        wrong = sum(not row.is_right for row in rows)
        return [f"{wrong} wrong" if wrong else "all as they must be"]

    def passed(self, rows: Sequence[Verdict]) -> bool:
        return all(row.is_right for row in rows)


def run_case(case: Case, folder: Path) -> Result:
    """Run it in a folder of its own until ``--on-hang`` is told something, or to its end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    told, log = folder / "told.json", folder / "log.jsonl"
    words = under_tuimon(log, "--no-gpu", "--on-hang", f"tee {shlex.quote(str(told))}")
    begun_s = time.monotonic()
    until_s = begun_s + LIMIT_S
    with (
        (folder / "output").open("wb") as output,
        started([*words, *case.command(folder)], log, stdout=output, stderr=output) as process,
    ):
        while process.poll() is None and time.monotonic() < until_s and _reported(told) is None:
            step_s = last_step(folder)[1]
            if case.hangs and step_s is not None and time.monotonic() - step_s > UNTOLD_S:
                break
            time.sleep(0.2)
        finding, exit_code = _reported(told), process.poll()
        step, step_s = last_step(folder)
        after_s = None
        if finding is not None:
            told_s = told.stat().st_mtime - (time.time() - time.monotonic())
            after_s = told_s - (begun_s if step_s is None else step_s)
        return Result(finding, after_s, exit_code, step)


def last_step(folder: Path) -> tuple[int, float | None]:
    """The last step that any rank has ended, and when (s, monotonic)."""
    found = []
    for path in folder.glob("rank-*"):
        with contextlib.suppress(ValueError, OSError):  # it is being written
            step, at_s = path.read_text().split()
            found.append((int(step), float(at_s)))
    return (max(step for step, _ in found), max(at_s for _, at_s in found)) if found else (0, None)


def _reported(path: Path) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return told


def judged(case: Case, result: Result) -> Verdict:
    """True if a hang was told soon, with the odd rank and its line first; and nothing if nothing hangs."""
    if not case.hangs:
        return _judged_healthy(case, result)
    if result.told is None or result.told_after_s is None:
        return Verdict(case, False, f"nothing was told; exit code {result.exit_code}, step {result.steps}")
    told_ranks = result.told["evidence"].get("odd_ranks")
    lines = [place["line"] for place in result.told["where"] if place["file"].endswith(TRAINING.name)]
    wrong = []
    if result.told_after_s > SOON_S:
        wrong.append("late")
    expected = odd_lines(case.fault)
    is_tie = case.fault == "skip" and case.ranks == 2  # each waits for the other
    if told_ranks != (None if is_tie else str(case.ranks - 1)):
        wrong.append("not the odd rank")
    if expected and not expected & set(lines if is_tie else lines[:1]):
        wrong.append(f"not its line ({', '.join(map(str, sorted(expected)))})")
    line = lines[0] if lines and expected else None
    return Verdict(case, not wrong, ", ".join(wrong) or "right", result.told_after_s, told_ranks, line)


def _judged_healthy(case: Case, result: Result) -> Verdict:
    if result.told is not None:
        return Verdict(case, False, f"a hang was told: {result.told['headline']}", result.told_after_s)
    if result.exit_code is None or (result.exit_code == 0) != (case.exit_code == 0):
        return Verdict(case, False, f"exit code {result.exit_code}")
    if case.exit_code == 0 and result.steps < AT + 50:
        return Verdict(case, False, f"only {result.steps} steps")
    return Verdict(case, True, f"right: nothing was told, exit code {result.exit_code}")


def odd_lines(fault: str) -> frozenset[int]:
    """The lines of the training that the odd rank stands at."""
    lines = enumerate(TRAINING.read_text().splitlines(), 1)
    return frozenset(number for number, line in lines if fault in line.partition("# odd: ")[2].split(", "))


#: Each is tried with several numbers of ranks.
CASES = (
    Case("file"),  # the odd rank waits in open() for a file
    Case("worker_file"),  # its DataLoader worker does
    Case("skip"),  # it skips an all_reduce
    Case("stop"),  # it is stopped (SIGSTOP)
    Case("lock"),  # it waits for a lock that it holds
    Case("thread"),  # it waits for a thread of its own, which waits in open() for a file
    Case("owner"),  # it waits for a lock whose owner, a thread, waits in open() for a file
    Case("lost", by_shell=True),  # it is killed, its launcher does not look, the others wait for it
    Case("die", hangs=False, exit_code=None),  # it is killed, torchrun ends the others
    Case("restart", hangs=False, restarts=1),  # it is killed, torchrun --max-restarts 1
    Case("balanced", hangs=False),
    Case("evaluate", hangs=False),  # rank 0 evaluates for 40 s
    Case("checkpoint", hangs=False),  # rank 0 writes a checkpoint for 40 s
)
