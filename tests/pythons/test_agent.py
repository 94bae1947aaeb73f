"""The agent in every Python at hand: injected, with a ring, hooks, ranges, a fork; and unnoticed in old ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.agent.programs import ROOT, environment, printed_json, python
from tests.pythons import at_hand, fake_torch
from tuimon.agent.ring import layout
from tuimon.agent.ring.control_words import State
from tuimon.agent.ring.reader import RingReader

pytestmark = pytest.mark.trust

TRAIN = """
import json, os, sys, traceback
import torch, tuimon
from torch.utils.data import dataloader

loader = torch.utils.data.DataLoader(list(range(6)))
optimizer = torch.optim.Optimizer()
scaler = torch.amp.grad_scaler.GradScaler()
seen = []
for batch in loader:
    with tuimon.phase("half"):
        seen.append(batch)
    torch.autograd.backward(batch)
    scaler.step(optimizer)
    tuimon.step()
tuimon.mark("end")
workers = dataloader._MultiProcessingDataLoaderIter(loader)
workers._reset(loader)
try:
    torch.autograd.backward("bad")
except RuntimeError as error:
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]

child = os.fork()
if not child:
    torch.autograd.backward("child")
    os.kill(os.getpid(), 9)  # it leaves its ring behind
os.waitpid(child, 0)
runtime = sys.modules["_tuimon_agent.runtime"]
threads = sys.modules["threading"].enumerate() if "threading" in sys.modules else [0]
print(json.dumps([os.getpid(), child, seen, workers.resets, frames, runtime.on, len(threads)]))
"""


def markers(rings: Path, pid: int) -> tuple[list[int], dict[str, object], list[str]]:
    """Kinds of markers in the ring that a process left, its facts, and its names."""
    (path,) = rings.glob(f"{pid}-*.ring")
    reader = RingReader(str(path))
    read = list(reader.read())
    names = [reader.name(marker.value).split("\x1f")[0] for marker in read if marker.kind in (8, layout.MARK)]
    found = [marker.kind for marker in read if marker.kind != layout.GC_PAUSE], dict(reader.meta()), names
    reader.close()
    return found


@pytest.mark.parametrize("version", [*at_hand.VERSIONS, *at_hand.FREE_THREADED])
def test_markers(version: str, tmp_path: Path) -> None:
    executable = at_hand.python(version)
    rings = tmp_path / "rings"
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    path = os.pathsep.join([fake_torch.written(tmp_path), str(ROOT)])
    done = python(str(script), env=environment(rings, path=path), executable=executable)
    assert done.stderr == ""
    pid, child, seen, resets, frames, on, threads = printed_json(done)
    assert (seen, resets, on, threads) == ([[0, 1], [2, 3], [4, 5]], 2, True, 1)
    plain = tuple(map(int, version.rstrip("t").split("."))) < (3, 11)
    assert ("tuimon_backward" in frames) == plain  # 3.11 and later: hidden
    kinds, meta, names = markers(rings, pid)
    fetch, backward = [layout.FETCH_BEGIN, layout.FETCH_END], [layout.BACKWARD_BEGIN, layout.BACKWARD_END]
    update = [layout.OPTIMIZER_BEGIN] * 2 + [layout.OPTIMIZER_END] * 2
    step = [*fetch, layout.RANGE_PUSH, layout.RANGE_POP, *backward, *update, layout.STEP]
    iterators = [layout.ITER_BEGIN, layout.ITER_END] * 2
    assert kinds == [*step * 3, *fetch, layout.MARK, *iterators, *backward]
    assert names == ["half", "half", "half", "end"]
    assert meta["torch"] == "0.0" and str(meta["python"]).startswith(version.rstrip("t"))
    assert markers(rings, child)[0] == backward


@pytest.mark.parametrize("version", [*at_hand.OLD, *at_hand.VERSIONS, *at_hand.FREE_THREADED])
def test_programs_without_torch_run_as_ever(version: str, tmp_path: Path) -> None:
    executable = at_hand.python(version)
    listed = "sorted(m for m in sys.modules if 'tuimon' in m or 'custom' in m)"
    script = f"import json, sys; print(json.dumps([{listed}, sys.path]))"
    ours = python("-c", script, env=environment(tmp_path / "rings"), executable=executable)
    plain = python("-c", script, env=environment(None), executable=executable)
    assert (ours.stderr, plain.stderr) == ("", "")
    (modules, path), (plain_modules, plain_path) = printed_json(ours), printed_json(plain)
    if version in at_hand.OLD:
        assert modules == plain_modules
    else:  # next to nothing
        own = [name for name in modules if "tuimon" in name]
        assert own == ["_tuimon_agent", "_tuimon_agent.outside", "_tuimon_agent.watch"]
    assert path == plain_path
    assert not (tmp_path / "rings").exists()


@pytest.mark.parametrize("version", [*at_hand.VERSIONS, *at_hand.FREE_THREADED])
def test_threads_and_their_stacks_are_seen_from_within(version: str) -> None:
    """By the frames that the interpreter hands out or, where these are unsafe, as it dumps them."""
    program = os.path.join(os.path.dirname(__file__), "in_process.py")
    done = python(program, env=environment(None, path=str(ROOT)), executable=at_hand.python(version))
    has_gil, seen, opened, state, stacks, threads, pid = printed_json(done)
    assert has_gil == (version not in at_hand.FREE_THREADED)
    assert seen == [True, False, True, True, False, False, False]
    assert opened == 4  # the standard streams, and the folder that is listed
    assert (state, threads) == (State.WORKING, 2)
    assert "busy" in stacks[f'Thread {pid} "MainThread"']
    assert any(stack[-1] == "wait" for name, stack in stacks.items() if name.endswith('"parked"'))


COUNT = """
import array, json, os, sys, threading, types
from _thread import get_ident


class Tensor(array.array):
    pass


sys.modules["torch"] = types.SimpleNamespace(Tensor=Tensor, _C=None, __file__="/torch/__init__.py")
from tuimon.agent.control import calls
from tuimon.agent.pace import pace

said, over = [], []
task = types.SimpleNamespace(argument=1, is_over=False, finish=lambda steps, text: said.append(json.loads(text)),
                             refuse=said.append)
tensor, pace.thread = Tensor("i", [1, 2]), get_ident()


def each():
    for _ in range(5):
        yield tensor.tolist()


def other():
    while not over:
        list(tensor.tolist())


def step():
    for _ in range(40):
        tensor.tolist()
    list(each())


thread = threading.Thread(target=other, daemon=True)
thread.start()
work = calls.begin(task)
for _ in range(3):
    pace.updates += 1
    work.step()
    step()
over.append(True)
thread.join()
print(json.dumps([said, sys.getprofile() is None]))
"""


@pytest.mark.parametrize("version", [*at_hand.VERSIONS, *at_hand.FREE_THREADED])
def test_calls_are_counted_in_one_thread_where_that_leaves_no_trace(version: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(COUNT)
    done = python(str(script), env=environment(None, path=str(ROOT)), executable=at_hand.python(version))
    (said, *_), is_over = printed_json(done)  # refused anew at each pass, as nobody ends the task
    lines = [
        1 + COUNT.splitlines().index(text) for text in ("        tensor.tolist()", "        yield tensor.tolist()")
    ]
    counted = [["tolist", str(script), line, calls] for line, calls in zip(lines, (40, 5), strict=True)]
    is_safe = version in ("3.11", "3.12", "3.13", "3.14")
    assert is_over and said == (counted if is_safe else "this Python cannot be profiled without side effects")
