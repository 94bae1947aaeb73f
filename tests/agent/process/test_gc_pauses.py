"""Collections of the garbage collector, and what traces the program, as the agent marks them."""

import gc
import json
import sys
from types import SimpleNamespace

import pytest

from tests.agent.programs import environment, fake_torch, python
from tuimon.agent import debug_settings
from tuimon.agent.process import gc_pauses
from tuimon.agent.ring import layout
from tuimon.proc.ring_facts import RingFacts, ring_facts
from tuimon.records import Notice
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.source import ProcessSource


class Runtime:
    """What the callback needs of the module ``runtime``."""

    def __init__(self, has_ring=True):
        self.markers = []
        self.has_ring = has_ring

    def writer(self):
        return self if self.has_ring else None

    def emit(self, kind, value=0, flag=0):
        self.markers.append((kind, value, flag))


def pause(runtime, length_ns):
    times = iter([10_000_000, 10_000_000 + length_ns])
    callback = gc_pauses.make_callback(runtime, lambda: next(times))
    callback("start", {"generation": 2})
    callback("stop", {"generation": 2, "collected": 0, "uncollectable": 0})
    return runtime.markers


@pytest.mark.parametrize(
    ("length_ns", "has_ring", "markers"),
    [
        (2_000_000, True, [(layout.GC_PAUSE, 2_000_000, 2)]),
        (gc_pauses.PAUSE_NS - 1, True, []),
        (2_000_000, False, []),  # a collection makes no ring
    ],
)
def test_a_long_pause_is_marked_with_its_length_and_generation(length_ns, has_ring, markers):
    assert pause(Runtime(has_ring), length_ns) == markers


def test_one_that_had_begun_before_is_not_marked():
    runtime = Runtime()
    gc_pauses.make_callback(runtime, lambda: 10**12)("stop", {"generation": 2})
    assert runtime.markers == []


def test_nothing_is_raised_into_a_collection():
    broken = Runtime()
    broken.emit = None
    assert pause(broken, 2_000_000) == []


@pytest.fixture
def installed():
    runtime = Runtime()
    gc_pauses.uninstall()
    before = list(gc.callbacks)
    gc_pauses.install(runtime)
    yield runtime
    gc_pauses.uninstall()
    gc.callbacks[:] = before


def test_the_users_own_callbacks_stay_where_they_are(installed):
    seen = []

    def own(phase, info):
        seen.append(phase)

    gc.callbacks.append(own)
    gc.collect()
    gc_pauses.uninstall()
    gc_pauses.uninstall()
    assert gc.callbacks[-1] is own
    assert seen[:2] == ["start", "stop"]
    assert not gc_pauses.is_installed()


def test_a_program_may_throw_ours_out(installed):
    assert gc_pauses.is_installed()
    gc.callbacks.clear()
    assert not gc_pauses.is_installed()
    gc_pauses.uninstall()
    assert gc.callbacks == []


def test_the_last_collections_of_an_interpreter_print_nothing(tmp_path):
    body = """
import gc, torch
from _tuimon_agent.process import gc_pauses
gc_pauses.PAUSE_NS = 0
class Late:
    def __del__(self):
        gc.collect()
    def __init__(self):
        self.me = self
keep = Late()
"""
    env = environment(tmp_path / "rings", path=fake_torch(tmp_path))
    done = python("-c", body, env=env)
    assert (done.returncode, done.stderr) == (0, "")


SCRIPT = """
import json, sys, torch
runtime, reader = sys.modules["_tuimon_agent.runtime"], __import__("_tuimon_agent.ring.reader").ring.reader
print(json.dumps(reader.RingReader(runtime.writer().path).meta()["tracer"]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("options", "tracer"),
    [([], None), (["-m", "cProfile", "-o", "profile"], "cProfile"), (["-m", "trace", "--count", "-C", "."], "trace")],
)
def test_a_program_under_a_module_of_pythons(options, tracer, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    env = environment(tmp_path / "rings", path=fake_torch(tmp_path))
    done = python(*options, str(script), env=env, cwd=tmp_path)
    assert json.loads(done.stderr) == tracer


def test_our_own_count_of_calls_is_no_tracer(monkeypatch):
    counts = SimpleNamespace(__module__="tuimon.agent.control.calls")
    monkeypatch.setattr(sys, "getprofile", lambda: counts)
    assert debug_settings.tracer() is None
    counts.__module__ = "cProfile"
    assert debug_settings.tracer() == "cProfile"


def test_it_is_said_once():
    table = ProcessTable(1, "r1")
    table.facts = {7: ring_facts({"tracer": "cProfile"}), 8: RingFacts(tracer="pdb")}
    source = ProcessSource(table, 1.0)
    found = [record for _ in range(3) for record in source.read() if isinstance(record, Notice)]
    source.close()
    (message,) = [notice.message for notice in found if "traced" in notice.message]
    assert message.startswith("process 7 is being traced by cProfile") and "slowed" in message
