"""The facts read of a process when it appears, and again now and then: parent, command line, variables."""

from __future__ import annotations

import os
from typing import NamedTuple

from msgspec import Struct

from tuimon.agent import debug_settings
from tuimon.masking import masked
from tuimon.proc.processes import command_line, environment, shortened
from tuimon.proc.procfs import read_bytes, read_process_stat
from tuimon.proc.pythons import is_python


class Variables(Struct, frozen=True, gc=False):
    """The variables of a process's initial environment."""

    rank: int | None = None  # RANK, WORLD_SIZE
    world_size: int | None = None
    has_run_id: bool = False  # TUIMON_RUN
    omp_num_threads: int | None = None  # OMP_NUM_THREADS
    markers_off: bool = False  # TUIMON_MARKERS
    debug_settings: tuple[str, ...] = ()  # those of them that slow every step down


class ProcessFacts(NamedTuple):
    """The facts from which the role of a process follows."""

    pid: int
    ppid: int
    name: str  # of its main thread
    command: tuple[str, ...]
    is_python: bool
    variables: Variables | None = None  # None: they may not be read

    @property
    def rank(self) -> int | None:
        """RANK in the environment it was started with."""
        return self.variables.rank if self.variables else None


def read_facts(pid: int, name: str) -> ProcessFacts | None:
    """All of it, about 0.15 ms; None when the process is gone."""
    stat = read_process_stat(pid)
    if stat is None:
        return None
    command = shortened(masked(command_line(pid)))  # in this order: half a secret is not recognised
    environ, variables = environment(pid), None
    if environ or read_bytes(f"/proc/{pid}/environ", 1) is not None:  # env -i leaves nothing to read
        threads = _number(environ.get("OMP_NUM_THREADS", "").partition(",")[0])  # one number for each level: "4,2"
        variables = Variables(
            rank=_number(environ.get("RANK")),
            world_size=_number(environ.get("WORLD_SIZE")),
            has_run_id="TUIMON_RUN" in environ,
            omp_num_threads=threads if threads is not None and threads > 0 else None,
            markers_off=environ.get("TUIMON_MARKERS") == "0",
            debug_settings=tuple(debug_settings.of_environment(environ.get)),
        )
    return ProcessFacts(pid, stat.ppid, name, tuple(command), is_python(pid), variables)


def fingerprint(pid: int) -> int:
    """A number that changes with what the facts are read from: program, command line, variables. About 20 us."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        program = ""
    return hash((program, read_bytes(f"/proc/{pid}/cmdline"), read_bytes(f"/proc/{pid}/environ")))


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
