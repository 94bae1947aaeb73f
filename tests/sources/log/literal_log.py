"""A small log, record by record, and one that is written a second at a time."""

import random
from pathlib import Path

import msgspec

from tuimon.records import (
    Exit,
    Frame,
    Frames,
    Header,
    Loader,
    LoaderFacts,
    LoopStack,
    Mark,
    Notice,
    PhaseTime,
    Process,
    RangePlace,
    Record,
    StackCount,
    Stacks,
    Steps,
)
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


PID = 7
FRAMES = [Frame("train.py", line, f"f{line}", "x" * 50, True) for line in range(20)]
FACTS = LoaderFacts(dataset="Photos", kind="map", workers=2)
LOOP = [LoopStack("backward", [19])]
PLACE = RangePlace("augment", "train.py", "main", 3, 9)
TRAINER = Process(t=2.0, pid=PID, ppid=1, start_unix_s=1e9, command=["train.py"], role="trainer", markers=True)


def beginning() -> list[Record]:
    steps = steps_at(0)
    return [
        HEADER,
        TRAINER,
        Frames(t=2.0, pid=0, first=0, frames=FRAMES),
        Steps(**{**msgspec.structs.asdict(steps), "range_places": [PLACE]}),
        Loader(t=3.0, pid=PID, number=0, window_s=1.0, fetches=3, facts=FACTS),
        Stacks(t=3.0, pid=PID, window_s=1.0, samples=9, stacks=[], parked=[(99, "Parked")], loop=LOOP),
        Notice(t=3.0, pid=0, source="gpu", level="warning", message="no driver"),
    ]


def steps_at(second: int) -> Steps:
    t = 3.0 + second
    return Steps(
        t=t,
        pid=PID,
        window_s=1.0,
        count=3,
        first_index=3 * second,
        total_ns=9,
        phases=[PhaseTime("data", 9)],
        updates=3,
    )


def second_of(number: int) -> list[Record]:
    """About 1.3 KB."""
    noise = random.Random(number).randbytes(300).hex()
    frames = StackCount(PID, "MainThread", list(range(20)), 9)
    stacks = Stacks(t=3.0 + number, pid=PID, window_s=1.0, samples=9, stacks=[frames])
    return [steps_at(number), stacks, Mark(t=3.0 + number, pid=PID, name=noise)]


def record_run(log: LogWriter, seconds: int, first: int = 1) -> None:
    for number in range(first, first + seconds):
        for record in second_of(number):
            log.add_record(record)
        assert log.flush(float(number)) is None


def begun(path: Path) -> LogWriter:
    log = LogWriter(str(path))
    for record in beginning():
        log.add_record(record)
    return log
