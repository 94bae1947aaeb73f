"""What is planted, and what tuimon must report of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

TRAINING, ALONE = (Path(__file__).with_name(name) for name in ("training.py", "alone.py"))
_ODD = re.compile(r"# odd: ([\w, ]+)$")


class Case(NamedTuple):
    """One fault of ``training.py`` or ``alone.py``, and how it ends."""

    fault: str
    what: str
    hangs: bool = True
    exit_code: int | None = 0  # of a run that does not hang; None: not 0
    by_shell: bool = False  # a shell starts the ranks and waits for all, instead of torchrun
    restarts: int = 0
    script: Path = TRAINING

    @property
    def is_alone(self) -> bool:
        """Whether one process trains, without ranks."""
        return self.script == ALONE


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

_HANGS = {
    "two_locks": "waits for a lock whose owner waits for one that it holds",
    "queue_without_producer": "waits for a queue that nobody fills",
    "queue_of_dead_process": "... whose only producer has ended",
    "stuck_worker": "its DataLoader worker waits for ever",
    "recv_without_sender": "reads from a connection of its own, into which it writes nothing",
    "recv_from_idle_process": "reads from a process that waits for it to write",
    "socketpair": "reads from a pair of sockets of its own",
    "join": "joins a thread that never ends",
    "semaphore": "a semaphore was not given back",
    "process_semaphore": "... of multiprocessing",
    "full_pipe": "writes to a pipe that nobody reads",
    "first_pool": "its first batch waits for a thread that a forked worker does not have",
    "first_lock": "... for a lock that a thread held at the fork",
    "busy_main": "trains in a thread that hangs, while its main thread draws",
}
_PAUSES = {
    "evaluate": "evaluates for 75 s, with a third of a core",
    "checkpoint": "writes a checkpoint for 75 s",
    "wait_for_file": "looks for 40 s whether a file is there",
    "sleep": "sleeps for 40 s",
    "ask": "asks somebody who takes 75 s",
    "download": "receives 50 kB/s for 75 s",
    "trickle": "receives 50 bytes every 3 s for 75 s",
    "ask_working_server": "receives what another process takes 40 s to compute",
    "queue_of_working_process": "... through a queue",
    "join_working_process": "waits for the end of a process that computes for 40 s",
    "wait_for_idle_process": "waits for a program that sleeps for 40 s",
    "first_sleep": "the workers of its first batch sleep for 40 s",
    "first_program": "... wait for a program that sleeps",
    "first_trickle": "... receive 50 bytes every 3 s",
    "first_thread": "... wait for a thread of their own that sleeps",
    "after_serve": "has trained, and serves requests for 75 s",
    "after_accept": "has trained, and waits for a connection for 75 s",
    "after_sleep": "has trained, and sleeps in a loop for 75 s",
    "after_ask": "has trained, and asks somebody who takes 75 s",
    "after_wait": "has trained, and waits for an event for 75 s",
}
#: Trainings of one process.
ALONE_CASES = (
    *(Case(name, what, script=ALONE) for name, what in _HANGS.items()),
    *(Case(name, what, hangs=False, script=ALONE) for name, what in _PAUSES.items()),
)


def odd_lines(fault: str, script: Path = TRAINING) -> frozenset[int]:
    """The lines of the script that the odd rank stands at."""
    found = set()
    for number, line in enumerate(script.read_text().splitlines(), 1):
        match = _ODD.search(line)
        if match and fault in match[1].replace(" ", "").split(","):
            found.add(number)
    return frozenset(found)
