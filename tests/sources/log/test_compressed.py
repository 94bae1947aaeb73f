"""Compressed logs: every flushed window can be read, whatever follows it."""

import base64
import gzip
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from tests.sources.log.literal_log import END, HEADER, STEPS, begun, record_run, write
from tests.sources.log.test_log import FullDisk
from tuimon.errors import LogError, NotALog, UnreadableLog
from tuimon.records import Mark, Notice, Record, Steps
from tuimon.sources.log.runs import choose
from tuimon.sources.log.source import read_records
from tuimon.sources.log.writer import LogWriter


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "run.jsonl.gz", HEADER, STEPS, END)


def test_what_is_written_is_read_back_by_us_and_by_others(log: Path) -> None:
    assert list(read_records(str(log))) == [HEADER, STEPS, END]
    with gzip.open(log, "rt") as lines:
        assert len(list(lines)) == 3


def test_what_others_packed_as_several_members_is_one_log(tmp_path: Path) -> None:
    lines = write(tmp_path / "run.jsonl", HEADER, STEPS, END).read_bytes().splitlines(keepends=True)
    packed = tmp_path / "run.gz"
    packed.write_bytes(gzip.compress(b"".join(lines[:2])) + gzip.compress(lines[2]))
    assert list(read_records(str(packed))) == [HEADER, STEPS, END]


def test_a_torn_end_costs_only_what_is_torn(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl.gz")
    sizes = []
    for number in range(1, 30):
        record_run(log, 1, number)
        sizes.append(os.stat(log.path).st_size)
    log.close()
    whole = Path(log.path).read_bytes()
    for number, size in enumerate(sizes[:-1]):
        for cut in (size, size + 1, (size + sizes[number + 1]) // 2):
            Path(log.path).write_bytes(whole[:cut])
            steps = [r.first_index // 3 for r in read_records(log.path) if isinstance(r, Steps)]
            assert steps[: number + 2] == list(range(number + 2))


def test_after_a_failed_write_the_log_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(monkeypatch, 10**9)
    log = begun(tmp_path / "run.jsonl.gz")
    record_run(log, 20)
    disk.room = os.stat(log.path).st_size + 100
    later: list[Record] = [Mark(t=30.0 + n, pid=7, name=os.urandom(40).hex()) for n in range(20)]
    for record in later:
        log.add_record(record)
    assert log.flush(30.0) is not None
    disk.room = 10**9
    assert log.flush(40.0) is not None
    record_run(log, 20, 41)
    log.add_record(END)
    log.close()
    records = list(read_records(log.path))
    assert [r for r in records if r in later] == later
    assert [r.first_index // 3 for r in records if isinstance(r, Steps)] == [*range(21), *range(41, 61)]
    assert records[-1] == END


def test_damage_within_is_said(tmp_path: Path) -> None:
    log = begun(tmp_path / "run.jsonl.gz")
    record_run(log, 200)
    log.close()
    data = bytearray(Path(log.path).read_bytes())
    data[len(data) // 2 : len(data) // 2 + 50] = b"\xff" * 50
    Path(log.path).write_bytes(data)
    *records, notice = read_records(log.path)
    assert len(records) > 100
    assert isinstance(notice, Notice)
    assert "skipped: damaged" in notice.message


@pytest.mark.parametrize(
    "content",
    [
        *(magic + rest for magic in (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd") for rest in (b"", b"\xff" * 100)),
        gzip.compress(b"print()\n" * 10, mtime=0),
    ],
)
def test_what_only_begins_as_if_compressed_or_is_no_log_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(NotALog):
        list(read_records(str(path)))
    with pytest.raises(LogError, match="is not a tuimon log"):
        LogWriter(str(path), force=True)
    assert path.read_bytes() == content


@pytest.mark.parametrize("lines", [b"", b'{"type":"header",'])
def test_a_bomb_takes_no_memory(tmp_path: Path, lines: bytes) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb") as file:
        file.write(lines)
        for _ in range(256):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 1 << 19
    tracemalloc.start()
    with pytest.raises(NotALog):
        list(read_records(str(path)))
    with pytest.raises(LogError):
        LogWriter(str(path))
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


#: A log of a header and an end, as tuimon wrote it before.
ZSTANDARD = base64.b64decode(
    b"KLUv/WAbAP0FAFLNJx2QOwe5//+/2BbdRAQcVYANv3ZNh1M04ffRhIxFuMB1LAuaTkqRd6NLJIzNVhfPRtMMC6kHXM+Z8hzjlc3X"
    b"h/flhOC1t/pVTljpk85F38o7m3ajprboJPqshAPRr42C8rYY3XT+876t8zkvX5w4GeX8KhIkdNRe6TvSQdBszpeXvv+cCZ2JvoPe"
    b"09Tz0XdgdB4Eom/Pp89x73n/RZW9FQsAIDxVhzqtAH6jNsjUFPwaf4Tdp0diGizQBDAD"
)


@pytest.fixture
def old(tmp_path: Path) -> str:
    (tmp_path / "run.jsonl.zst").write_bytes(ZSTANDARD)
    return str(tmp_path / "run.jsonl.zst")


@pytest.mark.skipif(sys.version_info < (3, 14), reason="Python has Zstandard from 3.14 on")
def test_an_old_log_is_read_where_python_can(old: str) -> None:
    assert list(read_records(old)) == [HEADER, END]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has Zstandard from 3.14 on")
def test_where_it_cannot_the_command_that_helps_is_named(old: str) -> None:
    with pytest.raises(UnreadableLog, match=r"Python reads from 3\.14 on") as refused:
        list(read_records(old))
    assert refused.value.hint == f"Decompress it first: zstd -d {old}"
    with pytest.raises(UnreadableLog):  # in a folder as well
        choose(os.path.dirname(old))


def test_an_old_log_is_not_overwritten_and_none_is_written_anew(old: str) -> None:
    for force in (False, True):
        with pytest.raises(LogError, match="compressed with gzip") as refused:
            LogWriter(old, force=force)
        assert refused.value.hint == f"Name it {old.removesuffix('.zst')}.gz"
    assert Path(old).read_bytes() == ZSTANDARD
