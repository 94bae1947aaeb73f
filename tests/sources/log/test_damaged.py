"""A log that is damaged, or that somebody else has written: what is sound of it is read; what is none is refused."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from tests.sources.log.literal_log import END, HEADER, STEPS, write
from tuimon.errors import NotALog
from tuimon.records import Exit, GpuTime, Lead, Notice
from tuimon.sources.log.reader import LogSource, read_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", HEADER, STEPS, END)


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
        (bytes(range(256)) * 40, "is not a tuimon log"),
        (b'{"loss": 3}\n', "is not a tuimon log"),
        (b"[1, 2]\n", "is not a tuimon log"),
        (b"[" * 100_000, "is not a tuimon log"),
        (b'{"type":"steps","t":1,"pid":1}\n', "first line is not a header"),
        (b'{"type":"header","t":1}\n', "header is damaged"),
        (b'{"type":"header","schema":99,"shape":"unknown"}\n', "newer tuimon"),
        (b'{"type":"hea', "is not a tuimon log"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(NotALog) as error:
        list(read_log(str(path)))
    assert says in error.value.message
    assert error.value.exit_code == 1


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


def test_a_number_that_is_no_log_may_be_a_process() -> None:
    with pytest.raises(NotALog) as refused:
        next(read_log("4242"))
    assert refused.value.hint == "A process is watched by: tuimon attach 4242"


def test_a_line_longer_than_any_record_is_skipped(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    notice = Notice(t=2.0, pid=0, source="gpu", level="info", message="word " * (1 << 20))
    log.write_bytes(b"".join([*lines[:2], msgspec.json.encode(notice), b"\n", *lines[2:]]))
    *records, skipped = read_log(str(log))
    assert records == [HEADER, STEPS, END]
    assert isinstance(skipped, Notice)
