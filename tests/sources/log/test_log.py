"""The log: what is written is read back; what is no log is refused with a reason."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from tuimon.errors import LogError, NotALog
from tuimon.records import SCHEMA, Exit, GpuTime, Header, Lead, Mark, Notice, PhaseTime, Record, Steps
from tuimon.sources.base import Done
from tuimon.sources.log.reader import LogSource, find_log, read_log
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


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", HEADER, STEPS, END)


def test_round_trip(log: Path) -> None:
    assert list(read_log(str(log))) == [HEADER, STEPS, END]


def test_every_line_is_json_and_the_first_is_the_header(log: Path) -> None:
    lines = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    assert [line["type"] for line in lines] == ["header", "steps", "exit"]
    assert lines[0]["schema"] == SCHEMA


def test_a_folder_gets_a_file_of_its_own(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "logs") + "/")
    log.add_record(HEADER)
    log.flush(0.0)
    log.close()
    assert os.path.dirname(log.path) == str(tmp_path / "logs")
    assert find_log(str(tmp_path / "logs")) == log.path
    assert str(os.getpid()) in log.path


def test_logs_in_a_folder_never_share_a_file(tmp_path: Path) -> None:
    logs = [LogWriter(str(tmp_path), run="slurm-7.0 a/b") for _ in range(3)]
    for log in logs:
        log.add_record(HEADER)
        log.close()
    assert len({log.path for log in logs}) == 3
    host = socket.gethostname().partition(".")[0]
    assert all(os.path.basename(log.path).startswith(f"tuimon-slurm-7.0_a_b-{host}-") for log in logs)
    assert all(list(read_log(log.path)) == [HEADER] for log in logs)


def test_torn_foreign_and_blank_lines_are_passed_over(log: Path) -> None:
    lines = log.read_bytes().splitlines()
    future = b'{"type":"hologram","t":1,"pid":1}'
    damaged = b'{"type":"steps","t":"soon"}'
    log.write_bytes(b"\n".join([lines[0], b"", future, b'{"type":"ste', damaged, b"\xff\x00", lines[1], lines[2][:20]]))
    *records, notice = read_log(str(log))
    assert records == [HEADER, STEPS]
    assert isinstance(notice, Notice)
    assert notice.message == "2 lines of the log skipped: damaged, or written by a newer tuimon"


def test_fields_of_a_later_version_are_ignored(log: Path) -> None:
    first, second, _ = log.read_bytes().splitlines()
    log.write_bytes(first + b"\n" + second.replace(b'"count":3', b'"count":3,"colour":"blue"') + b"\n")
    assert list(read_log(str(log)))[1] == STEPS


def test_the_last_line_may_lack_its_end(log: Path) -> None:
    log.write_bytes(log.read_bytes().rstrip(b"\n"))
    assert list(read_log(str(log)))[-1] == END


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (bytes(range(256)) * 40, "is no tuimon log"),
        (b'{"loss": 3}\n', "is no tuimon log"),
        (b"[1, 2]\n", "is no tuimon log"),
        (b"[" * 100_000, "is no tuimon log"),
        (b'{"type":"steps","t":1,"pid":1}\n', "first line is no header"),
        (b'{"type":"header","t":1}\n', "header is damaged"),
        (b'{"type":"header","schema":99,"shape":"unknown"}\n', "newer tuimon"),
        (b'{"type":"hea', "is no tuimon log"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(NotALog) as error:
        list(read_log(str(path)))
    assert says in error.value.message
    assert error.value.exit_code == 1


def test_missing_and_empty_places(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="No such file"):
        list(read_log(str(tmp_path / "none")))
    with pytest.raises(NotALog, match="holds no log"):
        find_log(str(tmp_path))


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
        with pytest.raises(LogError, match="is no tuimon log"):
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
    assert list(read_log(str(log))) == [HEADER]
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


def test_the_source_replays_all_and_then_ends(log: Path) -> None:
    source = LogSource(str(log))
    assert source.header == HEADER
    found: list[Record] = []
    with pytest.raises(Done):
        found.extend(source.read())
    source.close()


def test_the_source_follows_until_the_exit(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "x.jsonl"))
    log.add_record(HEADER)
    log.flush(0.0)
    source = LogSource(log.path, follow=True)
    assert list(source.read()) == [HEADER]
    assert source.at_end
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
    source = LogSource(str(log), follow=True)
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


# -- a log that somebody else has written


def test_text_is_safe_in_every_field_once_it_is_read(tmp_path: Path) -> None:
    end = Exit(
        t=3.0, pid=7, exit_code=1, signal="\x1b]52;c;ZXZpbA==\x07SIG\u202eKILL", last_line="a\u061cb\x9b1mc\x7f\nd"
    )
    lead = Lead("fetch\x1b[2J end", 1, None, None, None, 0)
    gpu = GpuTime(t=2.0, pid=7, window_s=1.0, device=0, steps=1, total_ns=1, phases=[], leads=[lead])
    log = write(tmp_path / "a.jsonl", HEADER, gpu, end)
    _, *records = read_log(str(log))
    assert records == [
        structs.replace(gpu, leads=[structs.replace(lead, boundary="fetch end")]),
        structs.replace(end, signal="SIGKILL", last_line="ab1mc d"),
    ]


@pytest.mark.parametrize(
    "damage",
    [
        {"window_s": 0},
        {"window_s": -1.0},
        {"count": -3},
        {"count": 2**63},
        {"t": 1e300},
        {"histogram": [[10**6, 3]]},
        {"phases": [["data", -9]]},
        {"pid": -1},
    ],
)
def test_a_record_beyond_any_run_is_skipped_and_counted(log: Path, damage: dict[str, object]) -> None:
    header, steps, end = log.read_bytes().splitlines()
    log.write_bytes(b"\n".join([header, msgspec.json.encode(msgspec.json.decode(steps) | damage), end, b""]))
    *records, notice = read_log(str(log))
    assert records == [HEADER, END]
    assert isinstance(notice, Notice)
    assert notice.message.startswith("1 line of the log skipped")


def test_a_followed_log_says_how_many_lines_it_skipped(tmp_path: Path) -> None:
    log = write(tmp_path / "a.jsonl", HEADER, STEPS)
    source = LogSource(str(log), follow=True)

    def more(data: bytes) -> list[str]:
        with log.open("ab") as file:
            file.write(data)
        return [record.message for record in source.read() if isinstance(record, Notice)]

    assert more(b"{}\n") == ["1 line of the log skipped: damaged, or written by a newer tuimon"]
    assert more(b"") == []
    assert more(b"{}\n{\n{}}\n") == ["3 lines of the log skipped: damaged, or written by a newer tuimon"]
    source.close()


def test_what_never_ends_or_never_begins_is_refused_at_once(tmp_path: Path) -> None:
    fifo, sparse = tmp_path / "fifo", tmp_path / "sparse"
    os.mkfifo(fifo)
    with sparse.open("wb") as file:
        file.truncate(1 << 42)
    for path in (str(fifo), "/dev/zero", str(sparse)):
        with pytest.raises(NotALog):
            next(read_log(path))
        with pytest.raises(NotALog):
            LogSource(path)


def test_a_line_longer_than_any_record_is_skipped(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    notice = Notice(t=2.0, pid=0, source="gpu", level="info", message="word " * (1 << 20))
    log.write_bytes(b"".join([*lines[:2], msgspec.json.encode(notice), b"\n", *lines[2:]]))
    *records, skipped = read_log(str(log))
    assert records == [HEADER, STEPS, END]
    assert isinstance(skipped, Notice)
