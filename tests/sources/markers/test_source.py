"""The markers source on real rings of this very process, with a clock of its own."""

import errno
import os
import time

import pytest

from tests.shortage import no_handles
from tuimon.agent.ring import files, layout
from tuimon.agent.ring.files import TRACED, side_file, write_file
from tuimon.agent.ring.writer import RingWriter
from tuimon.records import Notice, Steps, Uncaught
from tuimon.sources.markers import source as module
from tuimon.sources.markers.source import MarkerSource
from tuimon.sources.process_table import ProcessTable


@pytest.fixture
def ring_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path))
    return tmp_path


def write(directory, run, steps=5):
    writer = RingWriter(str(directory / files.ring_name(os.getpid())))
    writer.set_meta({"run": run, "pid": os.getpid(), "torch": "2.13.0"})
    more(writer, steps)
    return writer


def more(writer, steps):
    for _ in range(steps):
        for kind in (layout.FETCH_BEGIN, layout.FETCH_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END):
            writer.emit(kind, 1)
        writer.emit(layout.OPTIMIZER_BEGIN)
        writer.emit(layout.OPTIMIZER_END)
    writer.flush()


class Clock:
    ahead_s = 0

    def __call__(self):
        return time.monotonic_ns() + self.ahead_s * 1_000_000_000


def test_a_ring_of_the_run_is_found_and_followed(ring_directory):
    writer = write(ring_directory, run="r1")
    table, clock = ProcessTable(os.getpid(), "r1"), Clock()
    source = MarkerSource(table, 1.0, clock)
    first = list(source.read())  # a window may end meanwhile
    clock.ahead_s = 2
    assert counted([*first, *source.read()]) == 4
    assert table.facts[os.getpid()].of_process["torch"] == "2.13.0"
    assert os.getpid() in table.trainers()
    writer.unlink()  # as at the end of a process
    clock.ahead_s = 3
    assert sum(record.count for record in source.read()) == 1
    assert list(source.read()) == []
    source.close()


def test_a_shortage_of_file_handles_in_the_monitor_ends_no_ring(ring_directory):
    """It may not be taken for the end of the process: its ring would be removed, and its steps go uncounted."""
    writer = write(ring_directory, run="r1")
    source = MarkerSource(ProcessTable(os.getpid(), "r1"), 1.0)
    count = sum(record.count for record in source.read())  # a window may have ended meanwhile
    more(writer, 3)
    with no_handles():
        for _ in range(3):
            with pytest.raises(OSError, match="Too many open files"):
                source.read()
    assert os.path.exists(writer.path)
    more(writer, 4)
    writer.unlink()
    assert count + sum(record.count for record in source.read()) == 5 + 3 + 4
    source.close()


def test_a_ring_that_a_shortage_of_handles_hid_is_found_later(ring_directory, monkeypatch):
    def none_left(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    writer = write(ring_directory, run="r1")
    source = MarkerSource(ProcessTable(1, "r1"), 1.0)  # no descendant: only its ring says that it is of the run
    with monkeypatch.context() as patch:
        patch.setattr(module, "RingReader", none_left)
        source.read()
    counted = sum(record.count for _ in range(2) for record in source.read())  # a window may end meanwhile
    writer.unlink()
    assert counted + sum(record.count for record in source.read()) == 5
    source.close()


def test_the_number_of_steps_goes_on_when_a_process_replaces_itself(ring_directory):
    source = MarkerSource(ProcessTable(1, "r1"), 1.0)
    first = write(ring_directory, run="r1")
    source.read()
    again = write(ring_directory, run="r1", steps=7)  # under the same path
    found = [source.read(), source.read(), source.read()]
    again.unlink()
    steps = [r for read in (*found, source.read()) for r in read if isinstance(r, Steps)]
    assert [record.first_index + record.count for record in steps][-1] == 5 + 7
    assert [record.first_index for record in steps] == sorted(record.first_index for record in steps)
    assert first.path == again.path
    assert source.steps_before.keys() <= {again.path}
    source.close()


def notices(records):
    return [record.message for record in records if isinstance(record, Notice)]


def counted(records):
    return sum(record.count for record in records if isinstance(record, Steps))


def test_a_ring_that_was_deleted_is_read_on_and_a_notice_says_so_once(ring_directory):
    writer = write(ring_directory, run="r1")
    clock = Clock()
    source = MarkerSource(ProcessTable(os.getpid(), "r1"), 1.0, clock)
    assert notices(source.read()) == []
    os.unlink(writer.path)  # by a logout, or a cleaner
    said, total = [], 0
    for _ in range(6):
        clock.ahead_s += 1
        more(writer, 10)
        records = list(source.read())
        said += notices(records)
        total += counted(records)
    assert len(said) == 1
    assert f"the ring of process {os.getpid()} was deleted" in said[0]
    writer.unlink()
    records = source.read()
    assert notices(records) == []
    assert total + counted(records) == 5 + 60
    source.close()


def test_a_ring_that_is_cut_short_ends_with_a_notice(ring_directory):
    writer = write(ring_directory, run="r1")
    source = MarkerSource(ProcessTable(os.getpid(), "r1"), 1.0)
    source.read()
    os.truncate(writer.path, layout.SLOTS_OFFSET + 100)
    said = [message for _ in range(4) for message in notices(source.read())]
    assert len(said) == 1
    assert "cannot be read any more" in said[0]
    source.close()


def test_what_is_written_while_a_read_begins_is_not_lost(ring_directory, monkeypatch):
    """The monitor may lose its core between any two lines, and the process ends meanwhile."""
    writer = write(ring_directory, run="r1")
    source = MarkerSource(ProcessTable(1, "r1"), 1.0)
    total = counted(source.read())  # a window may have ended meanwhile

    def ends(*_):
        if os.path.exists(writer.path):
            more(writer, 1)
            writer.unlink()
        return False

    monkeypatch.setattr(module, "goes_on", ends)
    assert total + counted(source.read()) == 6
    source.close()


def test_what_a_short_run_left_is_read_and_removed(ring_directory):
    writer = write(ring_directory, run="r1", steps=3)
    gone = ring_directory / f"{os.getpid()}-1.ring"  # of a process that is no more
    os.rename(writer.path, gone)
    with gone.open("r+b") as file:  # start ticks in the header
        file.seek(20)
        file.write((1).to_bytes(8, "little"))
    write_file(side_file(str(gone), TRACED), {})
    source = MarkerSource(ProcessTable(os.getpid(), "r1"), 1.0)
    assert sum(record.count for record in source.read()) == 3
    assert list(ring_directory.iterdir()) == []


def test_a_ring_of_another_run_is_left_alone(ring_directory):
    write(ring_directory, run="other")
    table = ProcessTable(1, "r1")
    source = MarkerSource(table, 1.0)
    assert list(source.read()) == []
    assert table.facts == {}


def test_garbage_among_the_rings_is_left_alone(ring_directory):
    (ring_directory / "12-34.ring").write_bytes(b"x" * 5000)
    (ring_directory / f"{os.getpid()}-1.ring").write_bytes(b"")
    (ring_directory / "\u00b2-1.ring").write_bytes(b"")
    (ring_directory / "not a ring").write_text("")
    source = MarkerSource(ProcessTable(os.getpid(), None), 1.0)
    assert list(source.read()) == []


def test_no_directory_no_markers(monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", "/nonexistent/rings")
    assert list(MarkerSource(ProcessTable(os.getpid(), None)).read()) == []


LIBRARY = "/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("error", "files", "expected"),
    [
        ("KeyError: 1\n", ["/home/me/train.py", f"{LIBRARY}/pandas/frame.py"], ("KeyError: 1", "/home/me/train.py")),
        ("KeyError: 1\n", [f"{LIBRARY}/a/b.py"], ("KeyError: 1", f"{LIBRARY}/a/b.py")),
        ("KeyError: 1\n", [f"{LIBRARY}/nice/a.py", f"{LIBRARY}/b.py"], ("KeyError: 1", f"{LIBRARY}/nice/a.py")),
        (
            "ValueError: Caught ValueError in DataLoader worker process 0.\n"
            'Original Traceback (most recent call last):\n  File "x.py", line 3, in f\nValueError: bad \x1b[31m\n',
            [],
            ("ValueError: bad", ""),
        ),
        ("SubprocessError: \n\x1b[1mtwo lines", [], ("SubprocessError:", "")),
    ],
)
def test_the_error_that_ended_a_process(ring_directory, error, files, expected):
    writer, table = write(ring_directory, run="r1"), ProcessTable(os.getpid(), "r1")
    table.programs = frozenset({"nice"})  # the program, run as ``python -m nice.a``
    source = MarkerSource(table, 1.0, Clock())
    list(source.read())
    raised_in = {"files": files, "frames": [[number, number + 7, "f"] for number in range(len(files))]}
    writer.set_meta({"run": "r1", "error": error, "raised_ns": 5 * 10**9, "raised_in": raised_in})
    writer.unlink()
    (found,) = [record for record in source.read() if isinstance(record, Uncaught)]
    assert (found.error, found.file) == expected
    assert (found.t, found.line) == (5.0, 7 if files else 0)
