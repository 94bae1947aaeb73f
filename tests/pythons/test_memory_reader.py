"""Our own reader of stacks, on every Python at hand whose memory it knows: with a GIL or without."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.programs import ROOT, environment, printed_json, python
from tests.pythons import at_hand
from tests.waiting import until
from tuimon.sources.stacks.pyspy import dump, memory_reader
from tuimon.sources.stacks.pyspy.recorder import Ended, Recording

KNOWN = ("3.13", "3.14", *at_hand.FREE_THREADED)
PROGRAM = Path(__file__).with_name("legal_stacks.py")
FOLDER = "Größe 大"
#: What a stack ends in, root first, by the function that the thread began with.
LEGAL = {
    "calls_c": (
        [],
        ["räume"],
        ["räume", "<genexpr>"],
        ["räume", "<genexpr>", "middle"],
        ["räume", "<genexpr>", "middle", "leaf"],
        ["by_key"],
        ["by_key", "middle"],
        ["by_key", "middle", "leaf"],
    ),
    "recurses": (
        *([*["deeper"] * depth] for depth in range(62)),
        ["deeper"] * 61 + ["leaf"],
    ),
}


@contextmanager
def running(version: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, in a folder whose name is not ASCII."""
    script = tmp_path / FOLDER / "legal.py"
    script.parent.mkdir()
    script.write_bytes(PROGRAM.read_bytes())
    command = [at_hand.python(version), str(script)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(None))
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(text: str, *, last: bool = False) -> int:
    """The line of the program that has this text."""
    found = [number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line]
    return found[-1 if last else 0]


def window_of(pid: int, rate_hz: int, window_s: float) -> Ended:
    recording = Recording.start(memory_reader.command(), pid, rate_hz, window_s)
    return until(lambda: recording.poll(time.monotonic()), "a window")


@pytest.mark.parametrize("version", KNOWN)
def test_stacks_are_whole(version: str, tmp_path: Path) -> None:
    """Through calls out of C and generators, though the threads run on while they are copied."""
    with running(version, tmp_path) as process:
        ended = window_of(process.pid, 200, 3.0)
    assert ended.samples is not None, ended.message
    assert ended.samples.instants > 0
    names, impossible = set(), 0
    for thread in ended.samples.threads:
        for stack in thread.stacks:
            functions = [frame.function for frame in stack]
            begin = next(name for name in ("calls_c", "recurses", "main", "_bootstrap") if name in functions)
            if begin in LEGAL:
                impossible += functions[functions.index(begin) + 1 :] not in LEGAL[begin]
                assert functions[:3] == ["_bootstrap", "_bootstrap_inner", "run"]
                names.add(begin)
            for frame in stack:
                if frame.function == "leaf":
                    assert frame.line in (line_of("def leaf"), line_of("return n + 1"))
                    assert frame.file == str(tmp_path / FOLDER / "legal.py")
    assert names == {"calls_c", "recurses"}
    assert impossible <= 0.1 * 3 * ended.samples.instants  # frames of two moments: 1 in 200 here


@pytest.mark.parametrize("version", KNOWN)
def test_a_dump_names_threads_and_lines(version: str, tmp_path: Path) -> None:
    script = str(tmp_path / FOLDER / "legal.py")
    reads = [("main", line_of("sys.stdin.read()")), ("<module>", line_of("main()", last=True))]

    def dumped() -> list[dump.DumpThread] | None:
        threads = dump._dump_by(memory_reader.command(), process.pid, 20.0)
        (main,) = (thread for thread in threads if thread.os_thread_id == process.pid)
        theirs = [(frame.name, frame.line) for frame in main.frames if frame.filename == script]
        return threads if theirs == reads else None

    with running(version, tmp_path) as process:
        threads = until(dumped, "the main thread to read")
    main = next(thread for thread in threads if thread.thread_name == "MainThread")
    assert main.os_thread_id == process.pid and len(threads) == 4
    named = {thread.thread_name for thread in threads}
    assert named == ({"MainThread", "calls_c", "recurses"} if version.startswith("3.14") else {"MainThread", ""})


def test_a_process_that_is_gone_or_no_python(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    try:
        ended = window_of(child.pid, 20, 30.0)
        assert ended.samples is None and "no interpreter was found" in ended.message
    finally:
        child.kill()
        child.wait()
    with pytest.raises(dump.DumpError, match="No such file"):
        dump._dump_by(memory_reader.command(), child.pid, 20.0)


def test_a_process_that_ends_leaves_what_was_sampled(tmp_path: Path) -> None:
    with running("3.13", tmp_path) as process:
        recording = Recording.start(memory_reader.command(), process.pid, 200, 3000.0)
        until(lambda: _cpu_ticks(recording.child) > 20, "some samples")
        process.kill()
        process.wait()
        ended = until(lambda: recording.poll(time.monotonic()), "its end")
    assert ended.samples is not None and ended.samples.instants > 0


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize("version", [*at_hand.VERSIONS, *at_hand.FREE_THREADED])
def test_what_other_threads_run_is_seen_from_within(version: str) -> None:
    program = str(Path(__file__).with_name("own_threads.py"))
    done = python(program, env=environment(None, path=str(ROOT)), executable=at_hand.python(version))
    has_gil, seen, files = printed_json(done)
    assert files == 4  # the standard streams, and the folder that is listed
    assert has_gil == (version not in at_hand.FREE_THREADED)
    assert seen == [True, False, True, True, False, False, False]


def test_the_command_line_is_pyspys(tmp_path: Path) -> None:
    """What it does not need of it, it does not mind."""
    with running("3.13", tmp_path) as process:
        done = subprocess.run(
            [*memory_reader.command(), "dump", "--pid", str(process.pid), "--nonblocking", "--json"],
            capture_output=True,
            check=True,
        )
    assert len(json.loads(done.stdout)) == 4
