"""A log of limited size: several files that read as one, whatever is removed, and whenever its writer is killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.sources.log.literal_log import HEADER
from tests.sources.log.split_log import (
    END,
    FACTS,
    FRAMES,
    LIMIT,
    LOOP,
    PID,
    PLACE,
    TRAINER,
    begun,
    files,
    record_run,
    second_of,
)
from tuimon.records import Header, Mark, Notice, Process, Record, Stacks, Steps
from tuimon.session.session import Session
from tuimon.sources.base import Done
from tuimon.sources.log.reader import LogSource, find_log, read_log
from tuimon.sources.log.writer import LogWriter


def session_of(records: list[Record]) -> Session:
    session = Session()
    for record in records:
        session.add(record)
    return session


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.zst", "run"])
def test_all_files_read_as_one_log(tmp_path: Path, name: str) -> None:
    log = begun(tmp_path / name, limit=3 * LIMIT)
    seconds = 1400 if name != "run.jsonl.zst" else 4000
    record_run(log, seconds)
    log.add_record(END)
    log.close()
    assert len(files(tmp_path)) > 1
    source = LogSource(log.path)
    backlog, size = source.backlog, sum(each.stat().st_size for each in tmp_path.iterdir())
    source.close()
    assert backlog is not None and backlog.of_bytes == size and backlog.read_bytes < size
    records = list(read_log(log.path))
    assert [r.first_index for r in records if isinstance(r, Steps)] == [3 * n for n in range(seconds + 1)]
    assert sum(isinstance(r, Mark) for r in records) == 10 * seconds
    assert sum(isinstance(r, (Header, Process)) for r in records) == 2
    assert not any(isinstance(r, Notice) and r.source == "log" for r in records)
    assert records[-1] == END


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.zst"])
def test_the_size_of_all_files_stays_within_the_limit(tmp_path: Path, name: str) -> None:
    log = begun(tmp_path / name)
    most = 0
    seconds = 50 if name == "run.jsonl" else 120
    for number in range(40):
        record_run(log, seconds, 1 + number * seconds)
        most = max(most, sum(path.stat().st_size for path in tmp_path.iterdir()))
    log.close()
    assert LIMIT / 2 < most <= LIMIT


def test_what_is_left_can_be_read_alone(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl")
    record_run(log, 3000)
    log.add_record(END)
    log.close()
    for name in files(tmp_path):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        records = list(read_log(str(tmp_path / name)))
        session = session_of(records)
        assert session.header is not None
        assert session.header.t == HEADER.t
        assert session.process(PID) == TRAINER
        kept = session.frames[19]
        assert (kept.file, kept.line, kept.source) == (FRAMES[19].file, FRAMES[19].line, FRAMES[19].source)
        (loader,) = session.over("recent").loaders(PID)
        assert loader.facts == FACTS
        assert session.notices["gpu"].message == "no driver"
        sampled = session.over("recent").process_samples(PID)
        assert sampled is not None
        assert sampled.threads.name_of(99) == "Parked"
        assert next(r.loop for r in records if isinstance(r, Stacks)) == LOOP
        assert any(r.range_places == [PLACE] for r in records if isinstance(r, Steps))
    whole = session_of(list(read_log(log.path)))
    assert whole.step_stats[PID].total == 3 * 3001
    assert "the log lacks 0:00:00 to 0:" in whole.notices["log"].message


def test_a_follower_goes_on_into_the_next_file(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl", limit=4 * LIMIT)
    record_run(log, 1)
    source = LogSource(log.path, follow=True)
    found = list(source.read())
    for first in range(2, 1502, 100):
        record_run(log, 100, first)
        found += source.read()
    log.add_record(END)
    log.close()
    with pytest.raises(Done):
        found.extend(source.read())
    source.close()
    assert len(files(tmp_path)) > 1
    assert [r.first_index for r in found if isinstance(r, Steps)] == [3 * n for n in range(1502)]
    assert not any(isinstance(r, Notice) and r.source == "log" for r in found)


def test_a_follower_that_was_left_behind_says_so(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl")
    record_run(log, 1)
    source = LogSource(log.path, follow=True)
    list(source.read())
    record_run(log, 3000, 2)
    LogSource.BATCH, batch = 10**6, LogSource.BATCH
    found = list(source.read())
    LogSource.BATCH = batch
    log.close()
    source.close()
    assert found[-1].t == 3004.0
    notice = next(r for r in found if isinstance(r, Notice) and r.source == "log")
    assert "of the run: removed to stay within --log-max" in notice.message


def test_no_file_of_anybody_else_is_touched(tmp_path: Path) -> None:
    other = begun(tmp_path / "run.2.jsonl", limit=None)  # another run's log, by accident of its name
    record_run(other, 3)
    other.close()
    (tmp_path / "run.1.jsonl").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run.5.jsonl").write_text("notes")
    before = {name: (tmp_path / name).lstat() for name in files(tmp_path)}
    log = LogWriter(str(tmp_path / "run.jsonl"), limit_bytes=LIMIT)
    log.add_record(msgspec.structs.replace(HEADER, wall_unix_s=2e9))
    record_run(log, 2000)
    log.close()
    assert {name: (tmp_path / name).lstat() for name in before} == before
    assert not (tmp_path / "elsewhere").exists()
    marks = [r for r in read_log(log.path) if isinstance(r, Mark)]
    assert [r.t for r in marks] == sorted(r.t for r in marks)


def test_force_removes_the_files_of_the_log_it_replaces(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl")
    record_run(log, 1000)
    log.close()
    (tmp_path / "run.99.jsonl").write_bytes(
        (tmp_path / "run.jsonl").read_bytes().replace(b'"host":"h"', b'"host":"i"', 1)
    )
    assert len(files(tmp_path)) > 3
    again = begun(tmp_path / "run.jsonl", force=True)
    record_run(again, 1)
    again.close()
    assert files(tmp_path) == ["run.99.jsonl", "run.jsonl"]


def test_a_log_that_was_moved_away_is_not_searched_for(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl")
    record_run(log, 1)
    (tmp_path / "run.jsonl").rename(tmp_path / "mine")
    (tmp_path / "run.jsonl").write_text("of somebody else")
    for number in range(2, 1000):
        for record in second_of(number):
            log.add_record(record)
        notice = log.flush(float(number))
        if notice is not None:
            break
    assert notice is not None
    assert "no longer the file that was begun" in notice.message
    log.close()
    assert files(tmp_path) == ["mine", "run.jsonl"]
    assert (tmp_path / "run.jsonl").read_text() == "of somebody else"


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.sources.log.split_log import LIMIT, begun, record_run
step = sys.argv[2]
real = getattr(os, step)
def killed(*args, **kwargs):
    if sys.argv[3] == "after":
        real(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
log = begun(Path(sys.argv[1]), limit=LIMIT)
for number in range(1, 10_000):
    if number == 600:
        setattr(os, step, killed)
    record_run(log, 1, number)
    print(number, flush=True)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", ["link", "replace", "unlink"])
@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.zst"])
def test_killed_between_two_files_a_log_loses_no_more_than_a_window(
    tmp_path: Path, name: str, step: str, moment: str
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / name), step, moment]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    flushed = int(ended.stdout.split()[-1])
    steps = [r.first_index // 3 for r in read_log(str(tmp_path / name)) if isinstance(r, Steps)]
    assert steps[-1] == flushed
    assert steps == list(range(steps[0], flushed + 1))
    assert find_log(str(tmp_path)) == str(tmp_path / name)


def test_a_folder_of_parts_is_one_log(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl")
    record_run(log, 400)
    log.close()
    os.utime(tmp_path / "run.1.jsonl", (2e9, 2e9))
    assert find_log(str(tmp_path)) == log.path


def test_facts_never_fill_a_file(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl")
    live = [msgspec.structs.replace(TRAINER, pid=1000 + n, command=["x" * 3000]) for n in range(100)]
    ended = [msgspec.structs.replace(TRAINER, pid=2000 + n, command=["y" * 3000], ended=True) for n in range(100)]
    for record in (*ended, *live):
        log.add_record(record)
    record_run(log, 600)
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LIMIT
    told = [r.pid for r in read_log(str(tmp_path / "run.jsonl")) if isinstance(r, Process)]
    assert 20 < len(told) < 100
    assert all(pid >= 1000 and pid < 2000 for pid in told)
    steps = [r for r in read_log(log.path) if isinstance(r, Steps)]
    assert steps[-1].first_index == 3 * 600
    assert len(steps) > 100


def test_a_command_line_longer_than_a_file_is_written_once_a_file(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "run.jsonl"), limit_bytes=LIMIT)
    log.add_record(msgspec.structs.replace(HEADER, command=["x" * (LIMIT // 2)]))
    record_run(log, 600)
    log.close()
    assert len(files(tmp_path)) <= 2
    steps = [r for r in read_log(log.path) if isinstance(r, Steps)]
    assert len(steps) > 200
