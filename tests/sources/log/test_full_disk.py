"""A disk that is full: what has room is written, the rest waits, is bounded and counted."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.log.literal_log import HEADER, STEPS
from tuimon.records import Exit, Mark, Notice, Record
from tuimon.sources.log import writer
from tuimon.sources.log.reader import read_log
from tuimon.sources.log.writer import LogWriter

END = Exit(t=900.0, pid=7, exit_code=1, last_line="RuntimeError: " + "x" * 400)


def no_sleep(_seconds: float) -> None:
    pass


def fill(log: LogWriter, records: list[Record], now_s: float) -> Notice | None:
    for record in records:
        log.add_record(record)
    return log.flush(now_s)


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


class FullDisk:
    """Takes so many bytes and no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        monkeypatch.setattr(writer, "write_some", self.write)

    def write(self, handle: int, data: bytes) -> int:
        size = os.fstat(handle).st_size
        if size >= self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(handle, data[: self.room - size])


def test_nothing_at_all_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FullDisk(monkeypatch, 1)
    log = LogWriter(str(tmp_path / "run.jsonl"), sleep=no_sleep)
    fill(log, [HEADER, STEPS], 0.0)
    log.close()
    assert log.lost == 2
