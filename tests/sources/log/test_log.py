"""The log: what is written is read back; whose file it is, and which files it never touches."""

import errno
import fcntl
import gzip
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.sources.log.literal_log import END, HEADER, STEPS, TRAINER, beginning, write
from tuimon.errors import LogError, NotALog
from tuimon.records import SCHEMA, Mark, Notice, Record
from tuimon.sources.base import Done
from tuimon.sources.log import writer
from tuimon.sources.log.runs import Chosen
from tuimon.sources.log.source import LogSource, read_records
from tuimon.sources.log.writer import FACTS_LIMIT, PENDING_LIMIT, LogWriter


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", HEADER, STEPS, END)


def test_every_line_is_json_and_the_first_is_the_header(log: Path) -> None:
    lines = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    assert [line["type"] for line in lines] == ["header", "steps", "exit"]
    assert lines[0]["schema"] == SCHEMA


def test_a_log_in_a_folder_is_compressed_and_one_with_a_name_is_lines_as_it_says(tmp_path: Path) -> None:
    named = LogWriter(str(tmp_path / "run.jsonl"))
    in_folder = LogWriter(str(tmp_path))
    for log in (named, in_folder):
        log.add_record(HEADER)
        log.close()
    assert in_folder.path.endswith(".jsonl.gz")
    assert gzip.decompress(Path(in_folder.path).read_bytes()) == Path(named.path).read_bytes()


def test_logs_in_a_folder_never_share_a_file(tmp_path: Path) -> None:
    logs = [LogWriter(str(tmp_path), run="slurm-7.0 a/b") for _ in range(3)]
    for log in logs:
        log.add_record(HEADER)
        log.close()
    assert len({log.path for log in logs}) == 3
    host = socket.gethostname().partition(".")[0]
    assert all(os.path.basename(log.path).startswith(f"tuimon-slurm-7.0_a_b-{host}-") for log in logs)
    assert all(list(read_records(log.path)) == [HEADER] for log in logs)


def test_missing_and_empty_places(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="No such file"):
        list(read_records(str(tmp_path / "none")))
    with pytest.raises(NotALog, match="holds no log"):
        list(read_records(str(tmp_path)))


@pytest.mark.parametrize("path", ["/dev/full", "/no/such/folder/x.jsonl", "/proc/x.jsonl"])
def test_what_cannot_be_written_is_known_at_once(path: str) -> None:
    with pytest.raises(LogError):
        LogWriter(path)


@pytest.mark.parametrize(
    "content",
    [b"print()", b" " * 50 + b"print()", b"\n\nprint()", b'{"type":"header","of":"another tool"}\n', b"{" * 9999],
)
def test_what_is_no_log_is_never_overwritten(tmp_path: Path, content: bytes) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(content)
    for force in (False, True):
        with pytest.raises(LogError, match="is not a tuimon log"):
            LogWriter(str(script), force=force)
    assert script.read_bytes() == content


def test_an_earlier_log_is_replaced_by_force_alone(log: Path) -> None:
    before = log.read_bytes()
    with pytest.raises(LogError, match="an earlier run") as refused:
        LogWriter(str(log))
    assert "--force" in (refused.value.hint or "")
    started = LogWriter(str(log), force=True)
    started.discard()  # the run did not start
    assert log.read_bytes() == before
    log.chmod(0o644)
    write(log, HEADER, force=True)
    assert list(read_records(str(log))) == [HEADER]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_log_is_for_its_owner_alone(log: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    empty = tmp_path / "empty"
    empty.touch()
    LogWriter(str(empty)).discard()  # made by somebody for us
    assert empty.exists()
    LogWriter(str(tmp_path / "new")).discard()
    assert not (tmp_path / "new").exists()


def test_two_runs_do_not_share_a_file(tmp_path: Path) -> None:
    first = LogWriter(str(tmp_path / "x"))
    with pytest.raises(LogError, match="another tuimon"):
        LogWriter(str(tmp_path / "x"))
    first.close()
    LogWriter(str(tmp_path / "x")).close()


def test_the_source_follows_until_the_exit(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "x.jsonl"))
    log.add_record(HEADER)
    log.flush(0.0)
    source = LogSource(Chosen(log.path), follow=True)
    assert source.read_ratio is not None
    assert list(source.read()) == [HEADER]
    assert source.read_ratio is None
    assert list(source.read()) == []
    log.add_record(STEPS)
    log.flush(1.0)
    assert list(source.read()) == [STEPS]
    log.add_record(END)
    log.flush(2.0)
    log.close()
    found = []
    with pytest.raises(Done):
        for record in source.read():
            found.append(record)
    assert found == [END]
    source.close()


def test_the_source_sees_no_half_line(log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole[:-30])
    source = LogSource(Chosen(str(log)), follow=True)
    assert list(source.read()) == [HEADER, STEPS]
    with open(log, "ab") as file:
        file.write(whole[-30:])
    with pytest.raises(Done):
        assert next(iter(source.read())) == END
        list(source.read())
    source.close()


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom tuimon.sources.log.writer import LogWriter\n"
        "LogWriter(sys.argv[1])\nos.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], check=False)
    with open(tmp_path / "x", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def fill(log: LogWriter, records: list[Record], now_s: float) -> Notice | None:
    for record in records:
        log.add_record(record)
    return log.flush(now_s)


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


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch, 10**9)


def marks(count: int) -> list[Record]:
    return [Mark(t=float(number), pid=7, name=f"mark {number}") for number in range(count)]


def test_a_full_disk_loses_no_more_than_it_must(tmp_path: Path, disk: FullDisk) -> None:
    log, records, disk.room = LogWriter(str(tmp_path / "x.jsonl")), [HEADER, *marks(60)], 2000
    notice = fill(log, records, 100.0)
    assert isinstance(notice, Notice)
    assert notice.level == "warning"
    assert os.strerror(errno.ENOSPC) in notice.message
    assert 1900 < os.path.getsize(log.path) <= 2000  # whole records, as many as there is room for
    assert log.flush(101.0) is None  # not yet: it is tried again after a while
    assert log.flush(106.0) is None  # still full: reported once
    disk.room = 10**9
    well = fill(log, [END], 112.0)
    assert well is not None and well.level == "ok"
    log.close()
    assert list(read_records(log.path)) == [*records, END]


def test_what_is_held_back_is_bounded_and_keeps_the_facts_that_come_once(tmp_path: Path, disk: FullDisk) -> None:
    log, begins, disk.room = LogWriter(str(tmp_path / "x.jsonl")), beginning(), 1
    later = marks(3000)
    assert fill(log, [*begins, *later], 0.0) is not None
    assert log.lost == 1001  # the notice of the beginning, and the oldest
    disk.room = 10**9
    notice = log.flush(10.0)
    assert notice is not None and "1001 records were lost" in notice.message
    log.close()
    assert list(read_records(log.path)) == [*begins[:-1], *later[-PENDING_LIMIT:]]


def test_these_are_bounded_as_well(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "x.jsonl"))
    for _ in range(PENDING_LIMIT + FACTS_LIMIT + 7):
        log.add_record(TRAINER)
    assert log.lost == 7
    log.discard()


def test_nothing_at_all_may_be_written(tmp_path: Path, disk: FullDisk) -> None:
    log, disk.room = LogWriter(str(tmp_path / "run.jsonl"), sleep=lambda _seconds: None), 1
    fill(log, [HEADER, STEPS], 0.0)
    log.close()
    assert log.lost == 2


def refuse(*_: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_part_that_cannot_be_taken_back(name: str, tmp_path: Path, disk: FullDisk, monkeypatch) -> None:
    """In lines it costs no other line; a compressed log ends where it was."""
    log = LogWriter(str(tmp_path / name), sleep=lambda _seconds: None)
    fill(log, [HEADER], 0.0)
    disk.room = os.stat(log.path).st_size + 20
    monkeypatch.setattr(writer.os, "ftruncate", refuse)
    assert fill(log, [STEPS], 1.0) is not None
    disk.room = 10**9
    fill(log, [STEPS], 100.0)
    log.close()
    assert list(read_records(log.path)) == [HEADER, STEPS, STEPS][: 1 if name.endswith("gz") else 3]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_deleted_or_replaced_is_reported_once(tmp_path: Path, replaced: bool) -> None:
    log = LogWriter(str(tmp_path / "x.jsonl"))
    assert fill(log, [HEADER], 100.0) is None
    os.unlink(log.path)
    if replaced:
        write(tmp_path / "x.jsonl", HEADER)
    notice = fill(log, marks(1), 101.0)
    assert notice is not None and "deleted or replaced" in notice.message and notice.hint is not None
    saved = Path(notice.hint.split()[-2])  # cp FROM TO
    assert fill(log, marks(2), 102.0) is None
    assert len(saved.read_bytes().splitlines()) == 4
    log.close()
