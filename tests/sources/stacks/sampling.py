"""Reads a StackSource again and again, and keeps its records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from tests.waiting import until
from tuimon.proc import procfs
from tuimon.proc.processes import program_name
from tuimon.records import Frame, Frames, Gil, Notice, Record, Stacks
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.stacks.source import StackSource


class SourceReader:
    """A source and its records so far."""

    def __init__(self, source: StackSource) -> None:
        self.source = source
        self.records: list[Record] = []
        self.frames: list[Frame] = []

    def until(self, condition: Callable[[SourceReader], object], what: str, patience_s: float = 30.0) -> None:
        def holds_after_reading() -> bool:
            for record in self.source.read():
                self.records.append(record)
                if isinstance(record, Frames):
                    assert record.first == len(self.frames)
                    self.frames += record.frames
            return bool(condition(self))

        until(holds_after_reading, what, patience_s)

    @property
    def stacks(self) -> list[Stacks]:
        """Windows with samples."""
        return [record for record in self.records if isinstance(record, Stacks) and record.samples]

    @property
    def lost(self) -> list[Stacks]:
        return [record for record in self.records if isinstance(record, Stacks) and record.lost]

    @property
    def gil(self) -> list[Gil]:
        return [record for record in self.records if isinstance(record, Gil)]

    @property
    def notices(self) -> list[Notice]:
        return [record for record in self.records if isinstance(record, Notice)]

    def functions(self, of: Stacks | None = None) -> set[str]:
        """Names in the stacks of one window, or of all."""
        windows = [of] if of else self.stacks
        return {self.frames[n].function for window in windows for stack in window.stacks for n in stack.frames}


@contextlib.contextmanager
def reading(table: ProcessTable, **options: object) -> Iterator[SourceReader]:
    """A source that leaves no py-spy behind."""
    source = StackSource(table, **options)  # type: ignore[arg-type]  # passed through
    try:
        yield SourceReader(source)
    finally:
        source.close()
        assert pyspies() == []


def pyspies() -> list[int]:
    """The py-spy children of this process."""
    me = os.getpid()
    return [child.pid for child in psutil.Process(me).children() if program_name(child.pid) == "py-spy"]


def fake_pyspy(folder: Path, script: str) -> str:
    """A py-spy that does what this shell script says."""
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def trainer(pid: int) -> ProcessTable:
    """A run of one training process."""
    table = ProcessTable(pid, None)
    table.publish({pid: procfs.start_ticks(pid) or 0}, {pid: "trainer"})
    return table
