"""Injection: who is instrumented, and that nothing of it can be noticed."""

import os
import shutil
import textwrap
import venv

import pytest

from tests.agent.programs import INJECT, environment, fake_torch, printed_json, python

#: prints whether this process has a ring
HAS_RING = """
import json, sys, torch
runtime = sys.modules.get("_tuimon_agent.runtime")
print(json.dumps(runtime is not None and runtime.on))
"""


@pytest.fixture
def rings(tmp_path):
    return tmp_path / "rings"


@pytest.fixture
def env(tmp_path, rings):
    return environment(rings, path=fake_torch(tmp_path))


def write(path, text):
    path.write_text(textwrap.dedent(text))
    return path


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_interpreters_that_ignore_us_run_as_ever(flag, tmp_path, env):
    script = "import sys; print([m for m in sys.modules if 'tuimon' in m])"
    done = python(flag, "-c", script, env=env)
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


def test_markers_can_be_switched_off(env, rings):
    assert printed_json(python("-c", HAS_RING, env=env | {"TUIMON_MARKERS": "0"})) is False
    assert not rings.exists()


def test_the_environment_is_left_for_children(env):
    child = "import json, os; print(json.dumps([os.environ.get(n) for n in ('PYTHONPATH', 'TUIMON_RUN')]))"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    assert printed_json(python("-c", script, env=env)) == [env["PYTHONPATH"], "test"]
    assert env["PYTHONPATH"].startswith(str(INJECT))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing_children_get_a_ring_at_their_first_marker(method, tmp_path, env):
    """They may be data workers or trainers: it follows from what they do."""
    script = f"""
    import json, multiprocessing, os, sys, torch

    def work(queue):
        from _tuimon_agent import runtime
        from _tuimon_agent.ring import layout
        before = runtime.writer() is not None
        runtime.emit(layout.FETCH_BEGIN, 1)
        fetched = runtime.writer() is not None
        runtime.emit(layout.BACKWARD_BEGIN)
        queue.put([runtime.on, before, fetched, runtime.writer() is not None])

    if __name__ == "__main__":
        context = multiprocessing.get_context("{method}")
        queue = context.Queue()
        child = context.Process(target=work, args=(queue,))
        child.start()
        print(json.dumps(queue.get(timeout=60)))
        child.join()
        sys.exit(child.exitcode)
    """
    path = write(tmp_path / "spawning.py", script)
    assert printed_json(python(str(path), env=env)) == [True, False, False, True]


def user_sitecustomize(tmp_path, body):
    folder = tmp_path / "user"
    folder.mkdir()
    write(folder / "sitecustomize.py", body)
    return str(folder)


def test_the_users_sitecustomize_runs_under_its_name(tmp_path, rings):
    user = user_sitecustomize(tmp_path, "import builtins; builtins.seen = (__name__, __file__)")
    script = """
import builtins, json, sys
print(json.dumps([builtins.seen, sys.modules["sitecustomize"].__file__, sys.modules["sitecustomize"].__spec__.origin]))
"""
    file = os.path.join(user, "sitecustomize.py")
    expected = [["sitecustomize", file], file, file]
    assert printed_json(python("-c", script, env=environment(rings, path=user))) == expected


def test_torch_imported_by_the_users_sitecustomize_counts(tmp_path, rings):
    user = user_sitecustomize(tmp_path, "import torch")
    path = os.pathsep.join([user, fake_torch(tmp_path)])
    assert printed_json(python("-c", HAS_RING, env=environment(rings, path=path))) is True


@pytest.mark.parametrize("body", ["1/0", "import no_such_module", "raise SystemExit(3)", "raise KeyboardInterrupt"])
def test_errors_of_the_users_sitecustomize_are_plain_pythons(body, tmp_path, rings):
    user = user_sitecustomize(tmp_path, body)
    results = []
    for env in (environment(rings, path=user), environment(None, path=user)):
        done = python("-c", "print('on')", env=env)
        last = done.stderr.strip().splitlines()[-1:]
        results.append((done.stdout, done.returncode, last))
    assert results[0] == results[1]


@pytest.mark.parametrize(("file", "text"), [("watch.py", "this is no Python"), ("install.py", "1/0")])
def test_our_own_errors_are_nobodys_business(tmp_path, file, text):
    """A broken copy of the agent folder: the user's program does not notice."""
    broken = tmp_path / "agent"
    shutil.copytree(INJECT.parent, broken)
    (broken / file).write_text(text)
    env = environment(tmp_path / "rings", path=fake_torch(tmp_path))
    env["PYTHONPATH"] = env["PYTHONPATH"].replace(str(INJECT), str(broken / "inject"))
    done = python("-c", "import torch; print(torch.__version__)", env=env)
    assert (done.stdout, done.stderr) == ("0.0\n", "")


def test_an_interpreter_without_our_dependencies(tmp_path, env):
    venv.create(tmp_path / "bare", with_pip=False)
    bare = str(tmp_path / "bare" / "bin" / "python")
    assert python("-c", "import msgspec", env=env, executable=bare).returncode == 1
    assert printed_json(python("-c", HAS_RING, env=env, executable=bare)) is True
