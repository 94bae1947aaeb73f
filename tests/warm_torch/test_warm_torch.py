"""A forked program is what ``python`` would have made of it."""

import json

import pytest

from tests.agent.programs import environment, python
from tests.warm_torch import warm_python

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PROGRAM = """
import atexit, json, os, pickle, sys

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
