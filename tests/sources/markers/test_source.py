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


class Run:
    """The run r1 of this process, or of another root, whose rings are followed on a clock that may be ahead."""

    def __init__(self, root=None):
        self.ahead_s = 0
        self.table = ProcessTable(root or os.getpid(), "r1")
        self.source = MarkerSource(self.table, 1.0, lambda: time.monotonic_ns() + self.ahead_s * 1_000_000_000)

    def read(self):
        return list(self.source.read())

    def count(self):
        """Steps in the records of another read."""
        return counted(self.read())


def counted(records):
    return sum(record.count for record in records if isinstance(record, Steps))


def notices(records):
    return [record.message for record in records if isinstance(record, Notice)]


@pytest.fixture
def run(ring_directory):
    run = Run()
    yield run
    run.source.close()


def test_a_ring_of_the_run_is_found_and_followed(ring_directory, run):
    writer = write(ring_directory, run="r1")
    count = run.count()  # a window may end meanwhile
    run.ahead_s = 2
    assert count + run.count() == 4
    assert run.table.facts[os.getpid()].of_process["torch"] == "2.13.0"
    assert os.getpid() in run.table.trainers()
    writer.unlink()  # as at the end of a process
    run.ahead_s = 3
    assert run.count() == 1
    assert run.read() == []


def test_a_shortage_of_file_handles_in_the_monitor_ends_no_ring(ring_directory, run):
    """It may not be taken for the end of the process: its ring would be removed, and its steps go uncounted."""
    writer = write(ring_directory, run="r1")
    count = run.count()  # a window may have ended meanwhile
    more(writer, 3)
    with no_handles():
        for _ in range(3):
            with pytest.raises(OSError, match="Too many open files"):
                run.read()
    assert os.path.exists(writer.path)
    more(writer, 4)
    writer.unlink()
    assert count + run.count() == 5 + 3 + 4


def test_a_ring_that_a_shortage_of_handles_hid_is_found_later(ring_directory, monkeypatch):
    def none_left(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    writer = write(ring_directory, run="r1")
    run = Run(root=1)  # no descendant: only its ring says that it is of the run
    with monkeypatch.context() as patch:
        patch.setattr(module, "RingReader", none_left)
        run.read()
    count = run.count() + run.count()  # a window may end meanwhile
    writer.unlink()
    assert count + run.count() == 5
    run.source.close()


def test_the_number_of_steps_goes_on_when_a_process_replaces_itself(ring_directory, run):
    first = write(ring_directory, run="r1")
    run.read()
    again = write(ring_directory, run="r1", steps=7)  # under the same path
    found = run.read() + run.read() + run.read()
    again.unlink()
    steps = [record for record in found + run.read() if isinstance(record, Steps)]
    assert [record.first_index + record.count for record in steps][-1] == 5 + 7
    assert [record.first_index for record in steps] == sorted(record.first_index for record in steps)
    assert first.path == again.path
    assert run.source.steps_before.keys() <= {again.path}


@pytest.mark.parametrize(("withdrawn", "begins"), [(False, 2), (True, 1)], ids=["exec", "injected again"])
def test_a_loop_whose_hooks_come_back_has_gone_on_meanwhile(ring_directory, run, withdrawn, begins):
    first = write(ring_directory, run="r1")
    found = run.read()
    if withdrawn:
        first.unlink(layout.WITHDRAWN)
        found += run.read() + run.read()
    again = write(ring_directory, run="r1", steps=7)
    found += run.read() + run.read() + run.read()
    again.unlink()
    steps = [record for record in found + run.read() if isinstance(record, Steps)]
    assert steps[-1].first_index + steps[-1].count == 5 + 7
    for field in ("first_step_s", "first_backward_s"):
        assert sum(getattr(record, field) is not None for record in steps) == begins


def test_a_ring_that_was_deleted_is_read_on_and_a_notice_says_so_once(ring_directory, run):
    writer = write(ring_directory, run="r1")
    assert notices(run.read()) == []
    os.unlink(writer.path)  # by a logout, or a cleaner
    records = []
    for _ in range(6):
        run.ahead_s += 1
        more(writer, 10)
        records += run.read()
    (said,) = notices(records)
    assert f"the ring of process {os.getpid()} was deleted" in said
    writer.unlink()
    records += (last := run.read())
    assert notices(last) == []
    assert counted(records) == 5 + 60


def test_a_ring_that_is_cut_short_ends_with_a_notice(ring_directory, run):
    writer = write(ring_directory, run="r1")
    run.read()
    os.truncate(writer.path, layout.SLOTS_OFFSET + 100)
    (said,) = (message for _ in range(4) for message in notices(run.read()))
    assert "cannot be read any more" in said


@pytest.mark.parametrize("reason", [layout.AT_END, layout.WITHDRAWN])
def test_hooks_that_another_tuimon_withdraws_are_named(reason, ring_directory, run):
    writer = write(ring_directory, run="r1")
    run.read()
    writer.unlink(reason)
    said = [message for _ in range(4) for message in notices(run.read())]
    begin = f"the hooks of process {os.getpid()} were withdrawn"
    assert [each.startswith(begin) for each in said] == [True] * (reason == layout.WITHDRAWN)


def test_what_is_written_while_a_read_begins_is_not_lost(ring_directory, run, monkeypatch):
    """The monitor may lose its core between any two lines, and the process ends meanwhile."""
    writer = write(ring_directory, run="r1")
    count = run.count()  # a window may have ended meanwhile

    def ends(*_):
        if os.path.exists(writer.path):
            more(writer, 1)
            writer.unlink()
        return False

    monkeypatch.setattr(module, "goes_on", ends)
    assert count + run.count() == 6


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_what_a_short_run_left_is_read_and_removed(reads, ring_directory, run):
    for _ in range(reads):
        assert run.count() == 0
    writer = write(ring_directory, run="r1", steps=3)
    gone = ring_directory / f"{os.getpid()}-1.ring"  # of a process that is no more
    os.rename(writer.path, gone)
    with gone.open("r+b") as file:  # start ticks in the header
        file.seek(20)
        file.write((1).to_bytes(8, "little"))
    write_file(side_file(str(gone), TRACED), {})
    assert run.count() == 3
    assert list(ring_directory.iterdir()) == []


def test_a_ring_of_another_run_is_left_alone(ring_directory):
    write(ring_directory, run="other")
    run = Run(root=1)
    assert run.read() == []
    assert run.table.facts == {}


def test_garbage_among_the_rings_is_left_alone(ring_directory, run):
    (ring_directory / "12-34.ring").write_bytes(b"x" * 5000)
    (ring_directory / f"{os.getpid()}-1.ring").write_bytes(b"")
    (ring_directory / "\u00b2-1.ring").write_bytes(b"")
    (ring_directory / "not a ring").write_text("")
    assert run.read() == []


def test_no_directory_no_markers(run, monkeypatch):
    monkeypatch.setenv("TUIMON_RING_DIR", "/nonexistent/rings")
    assert run.read() == []


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
def test_the_error_that_ended_a_process(ring_directory, run, error, files, expected):
    writer = write(ring_directory, run="r1")
    run.table.programs = frozenset({"nice"})  # the program, run as ``python -m nice.a``
    run.read()
    raised_in = {"files": files, "frames": [[number, number + 7, "f"] for number in range(len(files))]}
    writer.set_meta({"run": "r1", "error": error, "raised_ns": 5 * 10**9, "raised_in": raised_in})
    writer.unlink()
    (found,) = [record for record in run.read() if isinstance(record, Uncaught)]
    assert (found.error, found.file) == expected
    assert (found.t, found.line) == (5.0, 7 if files else 0)
