"""The launched process and how it is ended."""

import os
import signal
import sys

import pytest

from tests.waiting import alive, until
from tuimon.errors import LaunchError
from tuimon.launch.child import INJECT_DIRECTORY, Ending, ExitStatus, Launched, launch_environment

pytestmark = pytest.mark.trust


def launch(tmp_path, code, **options):
    output = str(tmp_path / "out")
    return Launched([sys.executable, "-c", code], "run-1", output=output, **options)


@pytest.fixture
def stubborn(tmp_path):
    """Ignores SIGINT and SIGTERM, and has a child that does so, too."""
    launched = launch(
        tmp_path,
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.fork(); os.write(1, f'ready {os.getpid()}\\n'.encode())\n"  # in one piece
        "while True: time.sleep(60)",
    )
    until(lambda: (tmp_path / "out").read_text().count("ready") == 2)
    yield launched
    if launched.is_alive():
        os.killpg(launched.pid, signal.SIGKILL)
    until(launched.poll)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("raise SystemExit(3)", ExitStatus(3, None)),
        ("import os; os._exit(5)", ExitStatus(5, None)),
        ("import os; os.kill(os.getpid(), 9)", ExitStatus(137, "SIGKILL")),
        ("import os; os.kill(os.getpid(), 40)", ExitStatus(168, "signal 40")),
        ("import os; os.execvp('sh', ['sh', '-c', 'exit 7'])", ExitStatus(7, None)),
        ("import os; os.close(1); os.close(2)", ExitStatus(0, None)),
    ],
)
def test_how_it_ended(tmp_path, code, ended):
    launched = launch(tmp_path, code)
    assert until(launched.poll) == ended
    assert launched.poll() == ended


def test_it_has_a_session_and_an_output_of_its_own(tmp_path):
    launched = launch(
        tmp_path,
        "import os, sys; print(os.getsid(0), os.getpid(), repr(sys.stdin.read())); print('err', file=sys.stderr)",
    )
    until(launched.poll)
    assert (tmp_path / "out").read_text() == f"{launched.pid} {launched.pid} ''\nerr\n"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_started(tmp_path):
    script = tmp_path / "x"
    script.write_text("no shebang")
    script.chmod(0o755)
    with pytest.raises(LaunchError) as error:
        Launched([str(script)], "r")
    assert "tuimon run bash" in (error.value.hint or "")
    script.write_text("#!/no/such/interpreter\n")
    with pytest.raises(LaunchError, match="interpreter is missing"):
        Launched([str(script)], "r")


@pytest.mark.parametrize(
    ("before", "options", "found"),
    [
        ({"PYTHONPATH": "/a:/b"}, {}, {"PYTHONPATH": f"{INJECT_DIRECTORY}:/a:/b", "TUIMON_RUN": "r"}),
        # no empty entry, which would be the working directory
        *(({"PYTHONPATH": each}, {}, {"PYTHONPATH": INJECT_DIRECTORY}) for each in (None, "", INJECT_DIRECTORY)),
        # of an enclosing run
        ({"TUIMON_OUTPUT": "/of/it", "TUIMON_MEMORY": "1"}, {}, {"TUIMON_OUTPUT": None, "TUIMON_MEMORY": None}),
        ({}, {"memory": True}, {"TUIMON_MEMORY": "1", "TUIMON_MARKERS": None}),
        ({}, {"output": "/out", "markers": False}, {"TUIMON_OUTPUT": "/out", "TUIMON_MARKERS": "0"}),
        ({"PYTHONUNBUFFERED": ""}, {"output": "/out"}, {"PYTHONUNBUFFERED": ""}),
        ({}, {"output": "/out"}, {"PYTHONUNBUFFERED": "1"}),
        ({"TUIMON_RING_DIR": "rings"}, {}, {"TUIMON_RING_DIR": os.path.abspath("rings")}),  # wherever the training goes
        ({"TUIMON_RING_DIR": ""}, {}, {"TUIMON_RING_DIR": ""}),
    ],
)
def test_the_environment_is_the_users_and_what_makes_markers(before, options, found, monkeypatch):
    for name, value in before.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    made = launch_environment("r", **{"output": None, "markers": True, **options})
    assert {name: made.get(name) for name in found} == found


def test_ending_gives_time_between_the_signals():
    sent = []
    ending = Ending(sent.append)
    assert ending.next_in_s(100.0) == 0.0
    steps = [ending.step(now_s) for now_s in (100.0, 100.1, 104.9, 105.0, 105.1, 109.9, 110.0, 110.1, 200.0)]
    assert [step for step in steps if step] == sent == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    assert steps[0] == signal.SIGINT
    assert steps[3] == signal.SIGTERM
    assert steps[6] == signal.SIGKILL
    assert ending.next_in_s(200.0) is None


def test_a_run_that_has_waited_for_a_core_is_given_as_much_longer():
    """It may be writing a checkpoint."""
    waited_s = 7.0
    ending = Ending(lambda number: None, lambda: waited_s)
    assert ending.step(100.0) == signal.SIGINT
    waited_s = 9.5
    assert ending.step(105.0) is None and ending.next_in_s(105.0) == 2.5
    assert ending.step(107.5) == signal.SIGTERM


def test_a_polite_process_ends_at_the_first_signal(tmp_path):
    launched = launch(
        tmp_path,
        "import time\n"
        "try:\n print('ready', flush=True)\n time.sleep(600)\n"
        "except KeyboardInterrupt:\n print('saved', flush=True); raise SystemExit(4)",
    )
    until(lambda: "ready" in (tmp_path / "out").read_text())
    assert launched.continue_end(0.0) == signal.SIGINT
    assert until(launched.poll) == ExitStatus(4, None)
    assert launched.continue_end(100.0) is None
    assert "saved" in (tmp_path / "out").read_text()


def test_a_stubborn_group_is_killed_whole(stubborn, tmp_path):
    pids = [int(line.split()[1]) for line in (tmp_path / "out").read_text().splitlines()]
    assert stubborn.continue_end(0.0) == signal.SIGINT
    assert stubborn.continue_end(5.0) == signal.SIGTERM
    assert all(alive(pid) for pid in pids)
    assert stubborn.continue_end(10.0) == signal.SIGKILL
    assert until(stubborn.poll) == ExitStatus(137, "SIGKILL")
    until(lambda: not any(alive(pid) for pid in pids))


def test_a_stopped_process_still_hears_the_end(tmp_path):
    launched = launch(tmp_path, "import time; print('ready', flush=True); time.sleep(600)")
    until(lambda: "ready" in (tmp_path / "out").read_text())
    os.kill(launched.pid, signal.SIGSTOP)
    launched.continue_end(0.0)
    assert until(launched.poll) == ExitStatus(130, "SIGINT")
