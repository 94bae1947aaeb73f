"""What is planted, and what tuimon must report of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

TRAINING = Path(__file__).with_name("training.py")
_ODD = re.compile(r"# odd: ([\w, ]+)$")


class Case(NamedTuple):
    """One fault of ``training.py``, and how it ends."""

    fault: str
    what: str
    hangs: bool = True
    exit_code: int | None = 0  # of a run that does not hang; None: not 0
    by_shell: bool = False  # a shell starts the ranks and waits for all, instead of torchrun
    restarts: int = 0


CASES = (
    Case("file", "the odd rank waits in open() for a file"),
    Case("worker_file", "its DataLoader worker does"),
    Case("skip", "it skips an all_reduce"),
    Case("stop", "it is stopped (SIGSTOP)"),
    Case("lock", "it waits for a lock that it holds"),
    Case("thread", "it waits for a thread of its own, which waits in open() for a file"),
    Case("owner", "it waits for a lock whose owner, a thread, waits in open() for a file"),
    Case("lost", "it is killed, its launcher does not look, the others wait for it", by_shell=True),
    Case("die", "it is killed, torchrun ends the others", hangs=False, exit_code=None),
    Case("restart", "it is killed, torchrun --max-restarts 1", hangs=False, restarts=1),
    Case("balanced", "nothing is wrong", hangs=False),
    Case("evaluate", "rank 0 evaluates for 40 s", hangs=False),
    Case("checkpoint", "rank 0 writes a checkpoint for 40 s", hangs=False),
)


def odd_lines(fault: str) -> frozenset[int]:
    """The lines of ``training.py`` that the odd rank stands at."""
    found = set()
    for number, line in enumerate(TRAINING.read_text().splitlines(), 1):
        match = _ODD.search(line)
        if match and fault in match[1].replace(" ", "").split(","):
            found.add(number)
    return frozenset(found)
