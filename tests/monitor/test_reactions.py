"""Commands for findings: when they run, what they are given, and that nothing waits for them."""

import json
import os
import signal
import sys

import pytest
from msgspec.structs import replace

from tests.session.records import header, process, session_of, steps
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.monitor.reactions import OUTPUT_BYTES, DetachedCommand, Reaction, Reactions
from tuimon.records import Frame, Place, StackGroup, StandingProcess, Standstill

HANG = Finding(
    rule="hang",
    severity="critical",
    headline="nothing has moved for 20s",
    fixes=(Fix("look at that line"),),
    where=(Place("t.py", 9, "f"),),
)
INPUT = Finding(
    rule="input_bound", severity="warning", headline="waits for data", fixes=(Fix("more workers"),), cause="no_workers"
)
STACKS = Standstill(
    t=2.0, pid=0, quiet_s=1.0, processes=[StandingProcess(100, "trainer", 0)],
    groups=[StackGroup([Frame("t.py", 9, "f", "lock.acquire()", True)], 0, [(100, 100)])],
)  # fmt: skip


class Watched:
    """Findings of a run from moment to moment; ``ended`` waits for the commands and returns their notices.

    ``see`` returns how many were begun since then: a short one may have ended by the time that is looked at.
    """

    def __init__(self, *reactions):
        self.reactions = Reactions([Reaction(*each) for each in reactions], False)
        self.told = []
        self.session = session_of(header(), process(), steps(1.0, {"forward": 50}))

    def see(self, now_s, *findings):
        self.session.now_s = now_s
        self.told += self.reactions.show(self.session, findings)
        return len(self.reactions.running) + sum("was not run" not in notice.message for notice in self.told)

    def ended(self):
        for each in self.reactions.running:
            each.join(30.0)
        told, self.told = [*self.told, *self.reactions.show(self.session, ())], []
        return [(notice.level, notice.message) for notice in told]


def test_a_hang_is_given_with_its_stacks_and_once_until_steps_went_on(tmp_path):
    watched = Watched(("hang", f"tee {tmp_path}/out.json"))
    assert watched.see(20.0, HANG) == 0  # the stacks are still to come
    watched.session.add(STACKS)
    assert watched.see(21.0, HANG) == watched.see(21.2, HANG) == 0  # it was judged without them
    assert watched.see(22.0, replace(HANG)) == 1 and watched.see(23.0, HANG) == 1
    ((level, message),) = watched.ended()
    assert level == "ok" and message.startswith(f"tee {tmp_path}/out.json has ended: {{")
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["rule"], told["where"]) == ("hang", [{"file": "t.py", "line": 9, "function": "f", "source": None}])
    assert (told["stacks"][0]["doing"], told["run"]["steps"], told["run"]["host"]) == ("acquire()", 10, "here")
    assert watched.see(30.0) == watched.see(31.0, HANG) == 0  # it flickers
    watched.session.add(steps(40.0, {"forward": 50}, first_index=10))
    assert watched.see(41.0) == 0
    assert watched.see(60.0, HANG) == 0 and watched.see(71.0, HANG) == 1  # no stacks: after a while without
    watched.ended()


@pytest.mark.parametrize("name", ["input_bound", "no_workers", "warning"])
def test_a_finding_that_holds_is_reported_once_a_run(name):
    watched = Watched((name, "true"), ("gc_pauses", "false"))
    assert [watched.see(t, INPUT) for t in (1.0, 2.0, 3.0)] == [0, 0, 0]
    assert watched.see(4.5) == watched.see(5.0, INPUT) == 0  # it has not held
    assert watched.see(8.5, INPUT) == 1
    assert watched.ended()[0][0] == "ok"
    assert watched.see(20.0) == watched.see(30.0, INPUT) == watched.see(40.0, INPUT) == 0


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("sh -c 'echo no; exit 3'", "ended with code 3: no"),
        ("/nowhere/at-all", "could not be started"),
    ],
)
def test_a_command_that_fails_is_a_notice(command, told):
    watched = Watched(("input_bound", command))
    watched.see(0.0, INPUT)
    watched.see(10.0, INPUT)
    ((level, message),) = watched.ended()
    assert level == "warning" and told in message


def test_one_that_takes_too_long_is_ended_with_all_it_has_started():
    slow = DetachedCommand(
        [sys.executable, "-c", "import os, time; os.fork(); time.sleep(600)"], b"", False, limit_s=1.0
    )
    slow.join(60.0)  # its output ends when the last process that holds it has ended
    assert slow.outcome is not None and "was ended after" in slow.outcome.trouble


LEAVES_ONE = """
import os, signal
if not os.fork():
    os.setsid()
    print("left", os.getpid(), flush=True)
    signal.pause()
"""


def test_one_that_leaves_a_process_behind_is_waited_for_no_longer_than_its_own_end():
    command = DetachedCommand([sys.executable, "-c", LEAVES_ONE], b"", False)
    command.join(30.0)
    assert command.outcome is not None and command.outcome.exit_code == 0
    os.kill(int(command.outcome.output.removeprefix("left ")), signal.SIGKILL)


def test_it_is_a_session_of_its_own_and_its_output_is_bounded():
    text = "import os, sys; print(os.getsid(0) == os.getpid(), len(sys.stdin.read())); print('x' * 100_000)"
    command = DetachedCommand([sys.executable, "-c", text], b"y" * 200_000, False)
    command.join(30.0)
    assert command.outcome is not None and command.outcome.exit_code == 0
    assert command.outcome.output.startswith("True 200000\n") and len(command.outcome.output) == OUTPUT_BYTES


def test_headless_it_prints_to_our_stderr(capfd):
    command = DetachedCommand(["echo", "a line of the command"], b"", True)
    command.join(30.0)
    assert command.outcome is not None and command.outcome.output == ""
    told = capfd.readouterr()
    assert told.err == "a line of the command\n" and told.out == ""


def test_only_so_many_run_at_a_time():
    watched = Watched(*[("input_bound", f"sleep 0.{n}") for n in range(1, 7)])
    watched.see(0.0, INPUT)
    assert watched.see(5.0, INPUT) == 4
    levels = [level for level, _ in watched.ended()]
    assert levels.count("warning") == 2
