"""A disk that is full when the run ends: the log still says how it ended, and how much of it is missing."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.log.literal_log import HEADER, STEPS
from tuimon.records import Exit, Mark, Notice, Record
from tuimon.sources.log import file as log_file
from tuimon.sources.log.file import RESERVE_BYTES
from tuimon.sources.log.reader import read_log
from tuimon.sources.log.writer import LogWriter

END = Exit(t=900.0, pid=7, exit_code=1, last_line="RuntimeError: " + "x" * 400)


def no_sleep(_seconds: float) -> None:
    pass


def marks(first: int, count: int) -> list[Record]:
    return [Mark(t=float(i), pid=7, name=f"mark {i} {'.' * 60}") for i in range(first, first + count)]


def fill(log: LogWriter, records: list[Record], now_s: float) -> Notice | None:
    for record in records:
        log.add_record(record)
    return log.flush(now_s)


def lost_by(path: Path, made: list[Record]) -> tuple[int, int, Record]:
    """Records that the log lacks, how many it says it lacks, and its last one."""
    found = list(read_log(str(path)))
    said = next(r.message for r in reversed(found) if isinstance(r, Notice) and r.source == "log")
    counts = [int(word) for word in said.split() if word.isdecimal()]
    return len(made) - sum(record in found for record in made), counts[0], found[-1]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Files of this process end at a limit that the test may lift; Python ignores SIGXFSZ."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = 2000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    yield tmp_path / "x.jsonl", limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_no_more_than_it_must(full_disk: tuple[Path, int]) -> None:
    path, limit = full_disk
    log = LogWriter(str(path))
    records: list[Record] = [HEADER, *(Mark(t=float(i), pid=7, name=f"mark {i}") for i in range(60))]
    for record in records:
        log.add_record(record)
    notice = log.flush(100.0)
    assert isinstance(notice, Notice)
    assert notice.level == "warning"
    assert os.strerror(errno.EFBIG) in notice.message
    assert limit - 100 < path.stat().st_size <= limit  # whole records, as many as there is room for
    assert log.flush(101.0) is None  # not yet: it is tried again after a while
    assert log.flush(106.0) is None  # still full: reported once
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.add_record(END)
    well = log.flush(112.0)
    assert well is not None
    assert well.level == "ok"
    log.close()
    assert list(read_log(str(path))) == [*records, END]


def test_what_is_held_back_is_bounded_and_keeps_the_header(full_disk: tuple[Path, int]) -> None:
    path, _ = full_disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    log = LogWriter(str(path))
    log.add_record(HEADER)
    for number in range(5000):
        log.add_record(Mark(t=float(number), pid=7, name="m"))
    assert log.flush(0.0) is not None
    assert log.lost == 3001
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    notice = log.flush(10.0)
    assert notice is not None
    assert "3001 records were lost" in notice.message
    log.close()
    found = list(read_log(str(path)))
    assert len(found) == 2000
    assert found[0] == HEADER
    assert found[-1].t == 4999.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(tmp_path)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small file system")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_on_a_full_disk_the_end_goes_into_the_room_kept_for_it(small_disk: Path) -> None:
    log = LogWriter(str(small_disk / "run.jsonl"), sleep=no_sleep)
    made: list[Record] = [HEADER, STEPS, *marks(0, 100)]
    assert fill(log, made, 0.0) is None
    with (small_disk / "other").open("wb", buffering=0) as other, pytest.raises(OSError, match="No space left"):
        while True:
            other.write(b"x" * 4096)
    made += marks(100, 1900)  # more than the room kept
    notice = fill(log, made[102:], 10.0)
    assert notice is not None
    assert "No space left" in notice.message
    assert "keeps no room" not in (notice.hint or "")
    log.add_record(END)
    log.close()
    missing, said, last = lost_by(small_disk / "run.jsonl", [*made, END])
    assert last == END
    assert 0 < missing == said == log.lost
    assert missing < 1900 - RESERVE_BYTES // 150  # the newest are there


def test_room_that_comes_back_in_time_loses_nothing(small_disk: Path) -> None:
    other = small_disk / "other"
    log = LogWriter(str(small_disk / "run.jsonl"), sleep=lambda _: other.unlink(missing_ok=True))
    made: list[Record] = [HEADER, *marks(0, 10)]
    fill(log, made, 0.0)
    with other.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    made += [*marks(10, 1500), END]
    fill(log, made[11:], 10.0)
    log.close()
    assert list(read_log(log.path)) == made
    assert log.lost == 0


def test_the_room_is_given_back(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "run.jsonl"))
    fill(log, [HEADER], 0.0)
    assert Path(log.path).stat().st_blocks * 512 > RESERVE_BYTES
    log.close()
    assert Path(log.path).stat().st_blocks * 512 < RESERVE_BYTES


@pytest.fixture
def file_limit() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("file_limit")
def test_at_the_limit_of_a_files_size_the_end_replaces_the_latest(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "run.jsonl"), sleep=no_sleep)
    made: list[Record] = [HEADER, *marks(0, 400)]
    fill(log, made[:50], 0.0)
    assert fill(log, made[50:], 1.0) is not None
    log.add_record(END)
    log.close()
    missing, said, last = lost_by(tmp_path / "run.jsonl", [*made, END])
    assert last == END
    assert 0 < missing == said == log.lost
    assert (tmp_path / "run.jsonl").stat().st_size <= 20_000


class FullDisk:
    """Takes so many bytes and no more, and keeps no room when asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        monkeypatch.setattr(log_file, "_write", self.write)
        monkeypatch.setattr(log_file, "_allocate", lambda *_: errno.EOPNOTSUPP)

    def write(self, handle: int, data: bytes) -> int:
        size = os.fstat(handle).st_size
        if size >= self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(handle, data[: self.room - size])


def test_a_file_system_that_keeps_no_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FullDisk(monkeypatch, 3000)
    log = LogWriter(str(tmp_path / "run.jsonl"), sleep=no_sleep)
    made: list[Record] = [HEADER, *marks(0, 100)]
    notice = fill(log, made, 0.0)
    assert notice is not None
    assert notice.hint is not None
    assert notice.hint.endswith("This file system keeps no room for the end of the run.")
    log.add_record(END)
    log.close()
    missing, said, last = lost_by(tmp_path / "run.jsonl", [*made, END])
    assert last == END
    assert 0 < missing == said == log.lost


def test_a_log_that_never_had_room_is_not_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(monkeypatch, 1)
    log = LogWriter(str(tmp_path / "run.jsonl"), sleep=no_sleep)
    assert fill(log, [HEADER, STEPS], 0.0) is not None
    log.add_record(END)
    disk.room = 900  # no more than the end needs
    log.close()
    first, *_, last = read_log(log.path)
    assert (first, last) == (HEADER, END)


def test_nothing_at_all_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FullDisk(monkeypatch, 1)
    log = LogWriter(str(tmp_path / "run.jsonl"), sleep=no_sleep)
    fill(log, [HEADER, STEPS], 0.0)
    log.close()
    assert log.lost == 2
