"""``tuimon run --headless``: signals, and what becomes of them, are the training's own."""

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

from tests.cli.command import LEAN, TUIMON, running, script
from tests.cli.terminal import Shown, ended, hang_up, on_terminal, program_on_terminal
from tests.cli.watched import recorded
from tests.views import streams
from tests.waiting import alive, until
from tuimon.cli.watching import watch_full_screen
from tuimon.launch.signals import PASSED_ON, LeaveSignals
from tuimon.monitor.options import Options
from tuimon.records import Exit
from tuimon.views.tui import app as screen
from tuimon.views.tui.app import AppOutcome

pytestmark = pytest.mark.trust

#: Notes each signal; ends once it has heard all, of which any thread of tuimon may be the first to take one.
_NOTES = f"""
import signal, time
heard = []
for number in signal.valid_signals() - {{signal.SIGKILL, signal.SIGSTOP}}:
    signal.signal(number, lambda number, _: heard.append(number))
open("ready", "w").close()
while not {set(map(int, PASSED_ON))} <= set(heard):
    time.sleep(0.01)
open("heard", "w").write(" ".join(map(str, heard)))
raise SystemExit(len(heard))
"""


def _each(pid, number):
    for process in (*psutil.Process(pid).children(recursive=True), psutil.Process(pid)):
        with suppress(psutil.NoSuchProcess):  # a sampler of stacks that has just ended
            process.send_signal(number)


@pytest.mark.parametrize("send", [os.kill, os.killpg, _each])
def test_each_signal_reaches_the_training_once(tmp_path, send):
    numbers = sorted(PASSED_ON - {signal.SIGRTMAX})
    assert {signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU, signal.SIGALRM, 40} <= set(numbers)
    with running("run", *LEAN, "--", sys.executable, script(tmp_path, _NOTES), cwd=tmp_path) as process:
        until((tmp_path / "ready").exists)
        process.send_signal(signal.SIGSTOP)  # so that all are there when it looks, however busy the machine is
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        for number in numbers:
            send(process.pid, number)
        process.send_signal(signal.SIGRTMAX)  # to tuimon alone: passed on after what came before it
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == len(numbers) + 1
    assert sorted(map(int, (tmp_path / "heard").read_text().split())) == sorted(PASSED_ON)


def test_a_signal_without_a_handler_ends_the_training_and_its_exit_code_is_tuimons(tmp_path):
    text = "import signal\nopen('ready', 'w').close()\nwhile True: signal.pause()"
    with running("run", *LEAN, "--", sys.executable, script(tmp_path, text), cwd=tmp_path) as process:
        until((tmp_path / "ready").exists)
        process.send_signal(signal.SIGQUIT)
        assert process.wait(60) == 128 + signal.SIGQUIT


def test_an_interrupted_save_is_not_interrupted_again(tmp_path):
    text = """
import signal, time
try:
    open("ready", "w").close()
    signal.pause()
except KeyboardInterrupt:
    time.sleep(2)
    raise SystemExit(6)
"""
    with running("run", *LEAN, "--", sys.executable, script(tmp_path, text), cwd=tmp_path) as process:
        until((tmp_path / "ready").exists)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 6


def test_nothing_is_left_beside_a_training_whose_tuimon_is_killed(tmp_path):
    text = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nwhile True: time.sleep(0.1)"
    with running("run", *LEAN, "--", sys.executable, script(tmp_path, text), cwd=tmp_path) as process:
        pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.kill()
        until(lambda: [each for each in started if alive(each)] == [pid])


@pytest.mark.parametrize(
    "given",
    [
        "exec",
        "trap '' HUP INT QUIT TERM; exec",
        "trap '' PIPE;",  # the shell stays: exec would leave nobody who knows
        "exec env --block-signal=USR1,TERM,40",
    ],
)
def test_dispositions_and_mask_are_those_that_tuimon_was_given(tmp_path, given):
    found = []
    for words in ([], [*TUIMON, "run", *LEAN, "--"]):
        line = f"{given} {shlex.join([*words, 'grep', '-E', 'Sig(Blk|Ign|Cgt)', '/proc/self/status'])}; exit"
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=True)
        found.append(done.stdout)
    assert found[0] == found[1]


def test_a_terminal_that_is_lost_is_the_trainings_as_well(tmp_path):
    text = """
import signal, sys, time
signal.signal(signal.SIGHUP, lambda *_: sys.exit(9))
open("ready", "w").close()
while True: time.sleep(0.01)  # a signal that comes just before a pause would not end it
"""
    words = ("run", "--headless", *LEAN, "--log", "run.jsonl", "--", sys.executable, script(tmp_path, text))
    with on_terminal(*words, cwd=tmp_path) as (process, terminal):
        until((tmp_path / "ready").exists)
        hang_up(terminal)
        assert process.wait(60) == 9
    assert [each.exit_code for each in recorded(tmp_path / "run.jsonl") if isinstance(each, Exit)] == [9]


def test_the_training_reads_the_terminal_and_ctrl_c_interrupts_it_once(tmp_path):
    text = """
import getpass, signal, time
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
word, secret = input("word? "), getpass.getpass("secret? ")
signal.signal(signal.SIGUSR2, lambda *_: heard.append(2))
open("ready", "w").close()
while 2 not in heard:
    time.sleep(0.01)
open("heard", "w").write(f"{word} {secret} {heard}")
"""
    words = [*TUIMON, "run", "--headless", *LEAN, "--", sys.executable, script(tmp_path, text)]
    with program_on_terminal(words, cwd=tmp_path) as (process, terminal):
        shown = Shown(terminal)
        for asked, answer in ((b"word?", b"one\n"), (b"secret?", b"two\n")):
            until(lambda: shown.has(asked))  # noqa: B023
            os.write(terminal, answer)
        until((tmp_path / "ready").exists)
        os.write(terminal, b"\x03")
        process.send_signal(signal.SIGUSR2)
        assert ended(process, terminal) == 0
    assert (tmp_path / "heard").read_text() == "one two [1, 2]"


@pytest.mark.parametrize(
    ("options", "is_orphaned"), [({"start_new_session": True}, "True\n"), ({"preexec_fn": os.setpgrp}, "False\n")]
)
def test_a_process_group_is_orphaned_where_nobody_of_its_session_has_started_it(options, is_orphaned):
    code = "from tuimon.launch.signals import is_group_orphaned; print(is_group_orphaned())"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, **options)
    assert done.stdout == is_orphaned


VERDICT = """\
INPUT-BOUND: 62 % of every step waits for data: augment()
  transforms.py:31 keeps both workers at 100 %
- at `augment() transforms.py:31`: `out = cv(img, kernel)`
- fix: num_workers=2 -> 6 on this 16-core machine; or make augment()
  transforms.py:31 cheaper (up to 2.1x faster)
"""


@pytest.mark.parametrize("launched", [True, False])
def test_the_verdict_its_place_fix_and_gain_are_printed_once_the_screen_is_left(launched, monkeypatch, capsys):
    monitor = streams.input_bound(40)
    monitor.launched = monitor.launched if launched else None
    message = "The training goes on as pid 4242. Come back with: tuimon attach 4242" if launched else None
    monkeypatch.setattr(screen, "run_app", lambda *_: AppOutcome(0, message))
    monkeypatch.setenv("COLUMNS", "70")
    with LeaveSignals() as signals:
        watch_full_screen(monitor, Options(), signals)
    assert capsys.readouterr().out == VERDICT + (f"{message}\n" if message else "")
    monitor.findings.clear()
    watch_full_screen(monitor, Options(), LeaveSignals())
    assert capsys.readouterr().out.startswith("14.9 steps/s  median 67.0 ms ")
