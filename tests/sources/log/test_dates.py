"""A record dated far ahead is left out and counted, wherever it is; what its neighbours confirm stays."""

import os
from pathlib import Path

import pytest

from tests.session.records import header, session_of, steps
from tuimon.records import Exit, Mark, Notice, Record, Steps
from tuimon.sources.base import Done
from tuimon.sources.log.reader import LogSource, read_log
from tuimon.sources.log.writer import LogWriter

RUN: list[Record] = [header(pid=100), *(steps(float(t), {"backward": 1.0}, first_index=10 * t) for t in range(1, 100))]
END = Exit(t=100.0, pid=100, exit_code=0)
FAR = Mark(t=5e9, pid=100, name="damaged")


def written(path: Path, records: list[Record]) -> str:
    log = LogWriter(str(path))
    for record in records:
        log.add_record(record)
    log.flush(0.0)
    log.close()
    return str(path)


def skipped(records: list[Record]) -> list[str]:
    return [record.message for record in records if isinstance(record, Notice)]


@pytest.mark.parametrize("at", [1, 2, 50, len(RUN)])
def test_one_record_far_ahead_is_counted_and_moves_nothing(tmp_path: Path, at: int) -> None:
    records = list(read_log(written(tmp_path / "log.jsonl", [*RUN[:at], FAR, *RUN[at:], END])))
    assert FAR not in records
    assert [record for record in records if isinstance(record, Steps)] == RUN[1:]
    assert skipped(records) == ["1 line of the log skipped: damaged, or written by a newer tuimon"]
    session = session_of(*records)
    assert session.now_s == 100.0
    assert session.over("recent").steps(100).per_second == pytest.approx(10, rel=0.1)


def test_several_in_a_row_of_different_dates_are_left_out(tmp_path: Path) -> None:
    far = [Mark(t=t, pid=100, name="x") for t in (1e9, 1e6, 5e5, 7e8)]
    records = list(read_log(written(tmp_path / "log.jsonl", [*RUN[:50], *far, *RUN[50:], END])))
    assert [record for record in records if not isinstance(record, Notice)] == [*RUN, END]
    assert skipped(records)[0].startswith("4 lines")


def test_a_long_pause_stays(tmp_path: Path) -> None:
    """The monitor was stopped for hours."""
    later = [steps(t, {"backward": 1.0}, first_index=1000) for t in (9000.0, 9001.0)]
    records = list(read_log(written(tmp_path / "log.jsonl", [*RUN, *later, Exit(t=9002.0, pid=100, exit_code=0)])))
    assert records[-3:-1] == later
    assert skipped(records) == []


def test_the_end_is_known_whatever_its_date(tmp_path: Path) -> None:
    """A date that the file's own age allows stays: the disk was full until then."""
    path = written(tmp_path / "log.jsonl", [*RUN, Exit(t=8000.0, pid=100, exit_code=3)])
    os.utime(path, (1.7e9 + 8001, 1.7e9 + 8001))
    assert list(read_log(path))[-1] == Exit(t=8000.0, pid=100, exit_code=3)
    os.utime(path, (1.7e9 + 120, 1.7e9 + 120))
    assert list(read_log(path))[-1] == Exit(t=99.0, pid=100, exit_code=3)


def test_a_log_that_is_followed_waits_for_the_next_record(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = LogWriter(str(path))
    for record in (*RUN, FAR):
        log.add_record(record)
    log.flush(0.0)
    source = LogSource(str(path), follow=True)
    assert list(source.read()) == RUN
    log.add_record(END)
    log.flush(1.0)
    log.close()
    found: list[Record] = []
    with pytest.raises(Done):
        for record in source.read():
            found.append(record)
    source.close()
    assert END in found
    assert FAR not in found
    assert len(skipped(found)) == 1
