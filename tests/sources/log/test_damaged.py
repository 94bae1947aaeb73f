"""A log that is damaged, unreadable, or that somebody else has written: what is sound of it is read."""

import errno
import os
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from bench.fleet_logs import Job
from bench.fleet_logs import write as write_fleet
from tests.sources.log.failing_disk import UNREADABLE, fail_in
from tests.sources.log.literal_log import END, HEADER, STEPS, write
from tuimon.errors import NotALog, UnreadableLog
from tuimon.node_ids import node_of
from tuimon.records import Exit, GpuTime, Lead, Notice, Record, Steps
from tuimon.sources.log import runs
from tuimon.sources.log.runs import Chosen, choose, choose_all
from tuimon.sources.log.source import LogSource, read_records


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", HEADER, STEPS, END)


def test_torn_foreign_and_blank_lines_are_passed_over(log: Path) -> None:
    lines = log.read_bytes().splitlines()
    future = b'{"type":"hologram","t":1,"pid":1}'
    damaged = b'{"type":"steps","t":"soon"}'
    log.write_bytes(b"\n".join([lines[0], b"", future, b'{"type":"ste', damaged, b"\xff\x00", lines[1], lines[2][:20]]))
    *records, notice = read_records(str(log))
    assert records == [HEADER, STEPS]
    assert isinstance(notice, Notice)
    assert notice.message == "2 lines of the log skipped: damaged, or written by a newer tuimon"


def test_two_logs_in_one_file_are_not_taken_for_one_run(log: Path) -> None:
    other = write(log.with_name("b.jsonl"), structs.replace(HEADER, t=HEADER.t + 60.0), STEPS, END)
    log.write_bytes(log.read_bytes() + other.read_bytes())
    with pytest.raises(UnreadableLog, match="the log of another run behind its first"):
        list(read_records(str(log)))


def test_a_header_that_was_written_again_is_passed_over(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([lines[0], *lines]))
    assert list(read_records(str(log))) == [HEADER, STEPS, END]


def test_fields_of_a_later_version_are_ignored(log: Path) -> None:
    first, second, _ = log.read_bytes().splitlines()
    log.write_bytes(first + b"\n" + second.replace(b'"count":3', b'"count":3,"colour":"blue"') + b"\n")
    assert list(read_records(str(log)))[1] == STEPS


def test_the_last_line_may_lack_its_end(log: Path) -> None:
    log.write_bytes(log.read_bytes().rstrip(b"\n"))
    assert list(read_records(str(log)))[-1] == END


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
        list(read_records(str(path)))
    assert says in error.value.message
    assert error.value.exit_code == 1


def test_text_is_safe_in_every_field_once_it_is_read(tmp_path: Path) -> None:
    end = Exit(
        t=3.0, pid=7, exit_code=1, signal="\x1b]52;c;ZXZpbA==\x07SIG\u202eKILL", last_line="a\u061cb\x9b1mc\x7f\nd"
    )
    lead = Lead("fetch\x1b[2J end", 1, None, None, None, 0)
    gpu = GpuTime(t=2.0, pid=7, window_s=1.0, device=0, steps=1, total_ns=1, phases=[], leads=[lead])
    log = write(tmp_path / "a.jsonl", HEADER, gpu, end)
    _, *records = read_records(str(log))
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
    *records, notice = read_records(str(log))
    assert records == [HEADER, END]
    assert isinstance(notice, Notice)
    assert notice.message.startswith("1 line of the log skipped")


def test_what_never_ends_or_never_begins_is_refused_at_once(tmp_path: Path) -> None:
    fifo, sparse = tmp_path / "fifo", tmp_path / "sparse"
    os.mkfifo(fifo)
    with sparse.open("wb") as file:
        file.truncate(1 << 42)
    for path in (str(fifo), "/dev/zero", str(sparse)):
        with pytest.raises(NotALog):
            next(read_records(path))
        with pytest.raises(NotALog):
            LogSource(Chosen(path))


def test_a_number_that_is_no_log_may_be_a_process() -> None:
    with pytest.raises(NotALog) as refused:
        next(read_records("4242"))
    assert refused.value.hint == "A process is watched by: tuimon attach 4242"


def test_a_line_longer_than_any_record_is_skipped(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    notice = Notice(t=2.0, pid=0, source="gpu", level="info", message="word " * (1 << 20))
    log.write_bytes(b"".join([*lines[:2], msgspec.json.encode(notice), b"\n", *lines[2:]]))
    *records, skipped = read_records(str(log))
    assert records == [HEADER, STEPS, END]
    assert isinstance(skipped, Notice)


def long_log(path: Path) -> Path:
    return write(path, HEADER, *(structs.replace(STEPS, t=float(t), first_index=3 * t) for t in range(2, 400)))


def notices_of(records: list[Record], source: str) -> list[str]:
    return [record.message for record in records if isinstance(record, Notice) and record.source == source]


def test_a_log_whose_beginning_cannot_be_read() -> None:
    with pytest.raises(UnreadableLog) as refused:
        next(read_records(UNREADABLE))
    assert refused.value.message == "the log /proc/self/mem cannot be read: Input/output error"
    assert "dmesg" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE, errno.EISDIR])
def test_a_log_that_can_be_read_no_further(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = long_log(tmp_path / name)
    fail_in(monkeypatch, log, 600, number)
    with pytest.raises(UnreadableLog, match=f"the log {log} cannot be read: ") as refused:
        list(read_records(str(log)))
    assert refused.value.hint


class TestFolder:
    """Its other logs are read, and the one that cannot be is named."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        long_log(tmp_path / "a.jsonl")
        (tmp_path / "b.jsonl").symlink_to(UNREADABLE)
        (tmp_path / "c.jsonl").symlink_to("nothing")
        (tmp_path / "d.jsonl").mkdir()
        return tmp_path

    def test_the_latest_run_is_one_that_can_be_read(self, folder: Path) -> None:
        chosen = choose(str(folder))
        assert chosen.path == f"{folder}/a.jsonl"
        records = list(LogSource(chosen).read_all())
        assert sum(isinstance(record, Steps) for record in records) == 398
        (told,) = notices_of(records, runs.UNREADABLE)
        assert f"the log {folder}/b.jsonl cannot be read: Input/output error" in told
        assert f"the log {folder}/c.jsonl cannot be read: No such file" in told and "d.jsonl" not in told

    def test_all_runs_are_those_that_can_be_read(self, folder: Path) -> None:
        (chosen,) = choose_all(str(folder))
        assert chosen.path == f"{folder}/a.jsonl" and len(chosen.left_out) == 2

    def test_a_folder_that_cannot_be_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(_: str) -> list[str]:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(os, "listdir", fails)
        with pytest.raises(UnreadableLog, match=f"the folder {folder} cannot be read: Permission") as refused:
            choose(str(folder))
        assert refused.value.hint


@pytest.mark.parametrize(("after_bytes", "nodes"), [(0, {0, 1}), (100_000, {0, 1, 2})])
def test_of_a_run_on_several_nodes_the_others_are_read(
    after_bytes: int, nodes: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, second, _ = map(Path, write_fleet(str(tmp_path), Job(nodes=3, ranks=2, seconds=40.0, workers=1)))
    (tmp_path / "left.jsonl").symlink_to(UNREADABLE)
    chosen = choose(str(tmp_path))
    fail_in(monkeypatch, second, after_bytes)
    records = list(LogSource(chosen).read_all())
    windows = Counter(node_of(record.pid) for record in records if isinstance(record, Steps))
    assert set(windows) == nodes
    alone = sum(isinstance(record, Steps) for record in read_records(str(whole)))
    assert windows[0] == windows[max(nodes)] == alone
    assert not after_bytes or 0 < windows[1] < alone
    *_, told = notices_of(records, runs.UNREADABLE)
    assert f"{second} cannot be read: Input/output error" in told and "left.jsonl cannot be read" in told
