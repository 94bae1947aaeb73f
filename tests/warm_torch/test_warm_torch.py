"""A forked program is what ``python`` would have made of it."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.agent.programs import environment, fake_torch, printed_json, python
from tests.waiting import alive, until
from tests.warm_torch import WarmProgram, warm_python
from tests.warm_torch.connection import Server

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PROGRAM = """
import atexit, json, os, pickle, sys, torch

class Mine:
    pass

atexit.register(print, "over")
print(json.dumps([__name__, globals().get("__file__"), sys.argv, sys.path[:2], os.getcwd(), os.environ.get("WORD"),
                  "_tuimon_agent" in sys.modules, sys.modules["__main__"].__dict__ is globals(),
                  type(pickle.loads(pickle.dumps(Mine()))) is Mine]))
raise SystemExit(3)
"""


@pytest.mark.parametrize("as_file", [True, False])
def test_it_runs_as_in_an_interpreter_of_its_own(tmp_path, as_file):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [str(tmp_path / "program.py"), "word"] if as_file else ["-c", PROGRAM, "word"]
    env = environment(tmp_path / "rings", {"WORD": "x"}, path="/nowhere")
    warm, cold = (run(*words, env=env, cwd=tmp_path) for run in (warm_python, python))
    assert warm.returncode == cold.returncode == 3
    assert warm.stdout == cold.stdout and warm.stdout.endswith("\nover\n")
    assert json.loads(warm.stdout.splitlines()[0])[5:9] == ["x", True, True, True]


def test_an_error_ends_it_as_ever(tmp_path):
    done = warm_python("-c", "1 / 0", env=environment(None))
    assert done.returncode == 1 and done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_no_program_sees_what_another_has_changed():
    for _ in range(2):
        changes = (
            "import json, os, torch; print(json.dumps(hasattr(torch, 'ours'))); torch.ours = os.environ['A'] = '1'"
        )
        assert printed_json(warm_python("-c", changes, env=environment(None))) is False


def test_each_has_random_numbers_of_its_own():
    draw = "import json, random, numpy, torch\n"
    draw += "print(json.dumps([torch.initial_seed(), numpy.random.rand(), random.random()]))"
    first, second = (printed_json(warm_python("-c", draw, env=environment(None))) for _ in range(2))
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_it_can_be_killed_and_its_parent_knows():
    with open(os.devnull, "r+") as null:
        program = WarmProgram(["-c", "import time; time.sleep(1000)"], environment(None), None, [null.fileno()] * 3)
    assert program.poll() is None and alive(program.pid)
    program.kill()
    assert program.returncode == -signal.SIGKILL
    until(lambda: not alive(program.pid))


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Server]:
    """One whose torch takes no time to import."""
    path = fake_torch(tmp_path, "def seed(): ...")
    (tmp_path / "fake" / "torch" / "_dynamo.py").touch()
    (tmp_path / "fake" / "numpy.py").write_text("class random:\n    seed = staticmethod(lambda: None)\n")
    server = Server(path)
    yield server
    server.end()


def exit_code(server: Server, code: int) -> int | None:
    with open(os.devnull, "r+") as null:
        words = ["-c", f"raise SystemExit({code})  # {'long' * 20_000}"]
        program = WarmProgram(words, environment(None), None, [null.fileno()] * 3, server)
    ended = program.wait()
    program.kill()
    return ended


def test_threads_that_start_programs_at_once_share_a_server_and_get_their_own(quick):
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda code: exit_code(quick, code), range(40))) == list(range(40))
    servers = [child.pid for child in psutil.Process().children() if "server.py" in " ".join(child.cmdline())]
    assert servers.count(quick.pid) == 1 and len(servers) <= 2  # and that of the other tests


def test_a_server_that_was_killed_is_started_anew(quick):
    assert exit_code(quick, 1) == 1
    first = quick.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: not alive(first))
    assert exit_code(quick, 2) == 2
    assert quick.pid != first
