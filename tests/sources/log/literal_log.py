"""A small log, record by record."""

from __future__ import annotations

from pathlib import Path

from tuimon.records import Exit, Header, PhaseTime, Record, Steps
from tuimon.sources.log.writer import LogWriter

HEADER = Header(
    t=1.0,
    pid=7,
    mode="run",
    command=["train.py", "[bold]"],
    host="h",
    wall_unix_s=1e9,
    interval_s=1.0,
    cpu_count=2,
    versions={"tuimon": "0"},
)
STEPS = Steps(t=2.0, pid=7, window_s=1.0, count=3, first_index=0, total_ns=9, phases=[PhaseTime("data", 9)])
END = Exit(t=3.0, pid=7, exit_code=3, last_line="ValueError: ü")


def write(path: Path, *records: Record, force: bool = False) -> Path:
    log = LogWriter(str(path), force=force)
    for record in records:
        log.add_record(record)
    assert log.flush(0.0) is None
    log.close()
    return path
