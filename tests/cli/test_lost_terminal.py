"""The full screen on a real terminal, and on one that is lost, stalls, or stops it."""

import os
import re
import signal
import sys
import termios
from pathlib import Path

import psutil
import pytest

from tests.cli.command import LEAN, script
from tests.cli.terminal import Shown, drained, ended, hang_up, on_terminal
from tests.cli.test_run import LISTENER, heard
from tests.cli.watched import WORDS, WRITES, Watched, picture, watched
from tests.session import records
from tests.sources.log.literal_log import write
from tests.waiting import alive, until
from tuimon.records import Exit

pytestmark = pytest.mark.trust


def _hang_up_while_stopped(run):
    os.kill(run.process.pid, signal.SIGSTOP)
    run.hang_up()  # the kernel sends SIGHUP and SIGCONT


def _suspend(run):
    os.kill(run.pid, signal.SIGTSTP)
    until(lambda: run.has(b"\x1b[?1049l"))
    stopped = psutil.Process(run.pid)
    until(lambda: stopped.status() == psutil.STATUS_STOPPED)


def _end_and_leave(run):
    (run.folder / "go").touch()
    until(lambda: "ENDED" in picture(run))
    os.write(run.terminal, b"q")
    assert ended(run.process, run.terminal) == 5
    assert termios.tcgetattr(run.terminal) == run.modes


def _hang_up_with_frames_waiting(run):
    """The terminal takes nothing until it is lost: a write is under way, others wait."""
    until(run.is_full)
    run.record_more(5)
    run.hang_up()


@pytest.mark.parametrize("lose", [_hang_up_while_stopped, _hang_up_with_frames_waiting])
def test_the_log_goes_on_to_the_end_of_the_run(tmp_path, lose):
    with watched(tmp_path) as run:
        lose(run)
        until(run.goes_on_unseen)
        assert not [name for name in run.files() if "pts" in name or "tty" in name]
        cpu_s = run.cpu_s()
        run.record_more(10)  # 0.8 s or more
        assert run.cpu_s() - cpu_s < 0.4  # a thread that reads nothing from a lost terminal takes all of a core
        run.let_end()


def test_the_log_goes_on_when_a_shell_with_a_suspended_tuimon_loses_its_terminal(tmp_path):
    with watched(tmp_path, shell=True) as run:
        _suspend(run)
        run.hang_up()  # the kernel tells the shell, which tells its jobs, and continues them
        until(run.goes_on_unseen)
        run.let_end()


def test_suspended_and_continued_the_screen_is_whole(tmp_path):
    with watched(tmp_path, shell=True) as run:
        _suspend(run)
        assert termios.tcgetattr(run.terminal) == run.modes
        assert run.text.rindex(b"\x1b[?1049l") > run.text.rindex(b"\x1b[?1049h")
        os.kill(run.pid, signal.SIGCONT)
        until(lambda: "it trains" in picture(run) and run.text.count(b"\x1b[?1049h") == 2)
        _end_and_leave(run)


def test_continued_before_it_has_stopped_it_goes_on(tmp_path):
    with watched(tmp_path, shell=True) as run:
        until(run.is_full)  # giving such a terminal back takes a second
        os.kill(run.pid, signal.SIGTSTP)
        until(lambda: _is_about_to_stop(run.pid))
        os.kill(run.pid, signal.SIGCONT)
        run.record_more(WRITES)
        until(lambda: "it trains" in picture(run))
        _end_and_leave(run)


def test_where_nobody_could_continue_it_it_does_not_stop(tmp_path):
    with watched(tmp_path) as run:  # no shell: its process group is orphaned
        os.kill(run.pid, signal.SIGTSTP)
        until(lambda: run.has(b"\x1b[?1049l"))
        until(lambda: "it trains" in picture(run) and run.text.count(b"\x1b[?1049h") == 2)
        _end_and_leave(run)


def test_a_terminal_that_is_lost_after_the_end_adds_nothing_to_the_log(tmp_path):
    with watched(tmp_path) as run:
        (tmp_path / "go").touch()
        until(lambda: any(isinstance(record, Exit) for record in run.records()))
        run.hang_up()
        assert run.process.wait(60) == 5
        assert isinstance(run.records()[-1], Exit)


def test_a_lost_terminal_is_noticed_where_sighup_is_ignored(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with watched(tmp_path) as run:
            run.hang_up()
            until(run.goes_on_unseen)
            run.let_end()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_sighup_alone_gives_the_terminal_back(tmp_path):
    with watched(tmp_path) as run:
        run.process.send_signal(signal.SIGHUP)
        until(lambda: run.has(b"\x1b[?1049l"))  # it is read meanwhile, or it could not be given back
        until(run.goes_on_unseen)
        assert run.text.rindex(b"\x1b[?1049l") > run.text.rindex(b"\x1b[?1049h")
        assert termios.tcgetattr(run.terminal) == run.modes
        run.let_end()


def test_without_a_log_tuimon_ends_and_the_training_goes_on(tmp_path):
    with watched(tmp_path, log=False) as run:
        run.hang_up()
        assert run.process.wait(60) == 128 + signal.SIGHUP
        assert alive(run.training)
        (tmp_path / "go").touch()
        until((tmp_path / "result").exists)


def test_sigterm_after_the_loss_ends_tuimon_alone(tmp_path):
    with watched(tmp_path) as run:
        run.hang_up()
        until(run.goes_on_unseen)
        run.process.send_signal(signal.SIGTERM)
        run.process.wait(60)
        assert alive(run.training)
        assert (tmp_path / "run.jsonl").read_bytes().endswith(b"}\n")
        assert not any(isinstance(record, Exit) for record in run.records())


def test_a_run_that_is_being_ended_is_ended_without_a_terminal(tmp_path):
    text = "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    path = script(tmp_path, text + "open('heard', 'w').write(str(os.getpid()))\nwhile True: time.sleep(1)")
    with on_terminal("run", *WORDS, "--", sys.executable, path, cwd=tmp_path) as (process, terminal):
        run = Watched(process, terminal, tmp_path)
        os.write(terminal, b"q")
        until(lambda: run.has(b"Quit"))
        os.write(terminal, b"e")
        until(lambda: run.has(b"sent SIGINT"))
        run.hang_up()
        until(lambda: not alive(run.training))  # by SIGTERM: SIGINT was not enough
        assert process.wait(60) == 128 + signal.SIGTERM


def test_a_signal_ends_tuimon_in_order(tmp_path):
    with watched(tmp_path) as run:
        run.process.send_signal(signal.SIGUSR1)
        assert ended(run.process, run.terminal) == 128 + signal.SIGUSR1
        assert termios.tcgetattr(run.terminal) == run.modes
        assert alive(run.training)
        assert (tmp_path / "run.jsonl").read_bytes().endswith(b"}\n")


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_log(tmp_path):
    """A laptop sleeps: its connection stands for hours, and what is sent fills the buffers on the way."""
    with watched(tmp_path) as run:
        until(run.is_full)
        run.record_more(WRITES)
        (tmp_path / "go").touch()
        until(lambda: any(isinstance(record, Exit) for record in run.records()))
        # it wakes up: what it shows by then is whole
        until(lambda: "ENDED" in picture(run) and "it trains" in picture(run))
        assert picture(run).count("train.py") == 1
        os.write(run.terminal, b"q")
        assert ended(run.process, run.terminal) == 5
        assert termios.tcgetattr(run.terminal) == run.modes


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_end(tmp_path):
    with watched(tmp_path) as run:
        until(run.is_full)
        run.record_more(WRITES)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 128 + signal.SIGTERM
        assert alive(run.training)


def test_stopped_and_continued_the_screen_is_whole_and_the_terminal_given_back(tmp_path):
    with watched(tmp_path) as run:
        until(lambda: len(run.records()) > 2)  # its sources have begun
        threads = len(os.listdir(f"/proc/{run.process.pid}/task"))
        for _ in range(3):
            run.process.send_signal(signal.SIGSTOP)
            until(lambda: b"\nState:\tT" in Path(f"/proc/{run.process.pid}/status").read_bytes())
            termios.tcsetattr(run.terminal, termios.TCSANOW, run.modes)  # a shell takes it meanwhile
            drained(run.terminal)
            run.text = b""  # and clears it
            run.process.send_signal(signal.SIGCONT)
            until(lambda: "it trains" in picture(run) and "train.py" in picture(run))
            until(lambda: termios.tcgetattr(run.terminal)[3] & (termios.ICANON | termios.ECHO) == 0)
        until(lambda: len(os.listdir(f"/proc/{run.process.pid}/task")) <= threads)
        os.write(run.terminal, b"q")
        until(lambda: "is still running" in picture(run))
        run.process.send_signal(signal.SIGTERM)
        assert ended(run.process, run.terminal) == 128 + signal.SIGTERM
        assert termios.tcgetattr(run.terminal) == run.modes
        assert b"Traceback" not in run.text


def test_continued_in_the_background_it_stops_again_and_nothing_else_of_its_group_does(tmp_path):
    with watched(tmp_path, shell=True) as run:
        os.kill(run.pid, signal.SIGSTOP)
        run.process.send_signal(signal.SIGUSR1)
        tuimon = run.job("python")
        termios.tcsetattr(run.terminal, termios.TCSANOW, run.modes)  # as a shell does that takes its terminal back
        for _ in range(5):
            until(lambda: os.tcgetpgrp(run.terminal) == run.process.pid and _is_stopped(tuimon))
            switches = tuimon.num_ctx_switches().voluntary
            os.kill(run.pid, signal.SIGCONT)
            until(lambda: tuimon.num_ctx_switches().voluntary > switches and _is_stopped(tuimon))  # noqa: B023
        assert not _is_stopped(run.job("cat"))
        run.text = b""
        run.process.send_signal(signal.SIGUSR2)
        until(lambda: "it trains" in picture(run) and "train.py" in picture(run))
        _end_and_leave(run)


def test_ended_in_the_background_it_does_not_wait_for_the_terminal(tmp_path):
    with watched(tmp_path, shell=True) as run:
        _suspend(run)
        run.process.send_signal(signal.SIGUSR1)
        until(lambda: os.tcgetpgrp(run.terminal) == run.process.pid)
        for number in (signal.SIGTERM, signal.SIGCONT):  # as ``kill %1`` sends them
            os.kill(run.pid, number)
        assert ended(run.process, run.terminal) == 128 + signal.SIGTERM
        assert alive(run.training)


def _is_about_to_stop(pid):
    """True if a process has blocked SIGTSTP and sent it to itself."""
    pending = re.search(r"^SigPnd:\t(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(pending[1], 16) & 1 << signal.SIGTSTP - 1)


def _is_stopped(process):
    return bool(process.status() == psutil.STATUS_STOPPED)


def test_attach_and_view_come_back_to_a_run_whose_tuimon_lost_its_terminal(tmp_path):
    with watched(tmp_path) as run:
        run.hang_up()
        until(run.goes_on_unseen)
        with on_terminal("attach", *WORDS, str(run.training), cwd=tmp_path) as (process, terminal):
            attached = Shown(terminal)
            until(lambda: attached.has(b"it trains"))  # its output, too
            os.write(terminal, b"q")
            assert ended(process, terminal) == 0
        with on_terminal("view", "run.jsonl", cwd=tmp_path) as (process, terminal):
            viewed = Shown(terminal)
            until(lambda: viewed.has(b"train.py") and viewed.has(b" LIVE "))
            assert not viewed.has(b"ENDED")
            run.let_end()
            until(lambda: viewed.has(b"ENDED"))
            hang_up(terminal)
            assert process.wait(60) == 128 + signal.SIGHUP


def test_a_flood_of_output_does_not_fill_the_disk(tmp_path):
    """The full screen keeps the output in a file: its old part is given back while it grows."""
    flood = "import os, sys, time\nblock = b'x' * 1023 + b'\\n'\nfor _ in range(300): os.write(1, block * 1024)\n"
    path = script(tmp_path, flood + "open('heard', 'w').write(str(os.getpid()))\ntime.sleep(600)")
    with on_terminal("run", *LEAN, "--", sys.executable, path, cwd=tmp_path) as (_, terminal):
        pid = int(until(lambda: (drained(terminal), heard(tmp_path))[1])[0])
        try:
            (output,) = (tmp_path / "state" / "tuimon" / "runs").iterdir()
            assert output.stat().st_size == 300 * 1024 * 1024
            until(lambda: (drained(terminal), output.stat().st_blocks * 512 < 70 * 1024 * 1024)[1])
        finally:
            os.kill(pid, signal.SIGKILL)


def test_kill_9_of_the_full_screen_leaves_the_target_running(tmp_path):
    path = script(tmp_path, LISTENER)
    with on_terminal("run", *LEAN, "--", sys.executable, path, cwd=tmp_path) as (process, terminal):
        pid = int(until(lambda: (drained(terminal), heard(tmp_path))[1])[0])
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # by now its terminal is closed, too
    assert alive(pid)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive(pid))
    assert heard(tmp_path)[1:] == ["SIGTERM"]


def test_a_dumb_terminal_is_headless(tmp_path):
    path = script(tmp_path, "print('as', 'ever')")
    with on_terminal("run", *LEAN, "--", sys.executable, path, cwd=tmp_path, TERM="dumb") as (process, terminal):
        shows = Shown(terminal).has
        until(lambda: shows(b"as ever") and shows(b"[tuimon] ended with exit code 0") and process.poll() is not None)
    assert process.returncode == 0


@pytest.mark.parametrize("typed", [b"\xff", "é".encode("latin-1")])
def test_view_replays_a_log_and_q_leaves_whatever_was_typed(tmp_path, typed):
    log = write(tmp_path / "x.jsonl", records.header(), records.process(), Exit(t=9.0, pid=100, exit_code=3))
    with on_terminal("view", str(log), cwd=tmp_path) as (process, terminal):
        shows = Shown(terminal).has
        until(lambda: shows(b"ENDED"))
        os.write(terminal, typed)
        until(lambda: (os.write(terminal, b"q"), shows(b"\x1b[?1049l"))[1])
        assert ended(process, terminal) == 0
