"""A program that a profiler or a debugger traces says so, and the monitor passes it on."""

import json
import sys
from cProfile import Profile

import pytest

from tests.agent.programs import environment, fake_torch, python
from tuimon.agent import debug_settings
from tuimon.proc.ring_facts import RingFacts, ring_facts
from tuimon.records import Notice
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.source import ProcessSource

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


def test_none_here_and_one_while_it_runs():
    before = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    profile = Profile()
    try:
        outside = debug_settings.tracer()
        profile.enable()
        inside = debug_settings.tracer()
    finally:
        profile.disable()
        sys.settrace(before[0])
        sys.setprofile(before[1])
    assert (outside, inside) == (None, "cProfile")


def test_it_is_said_once():
    table = ProcessTable(1, "r1")
    table.facts = {7: ring_facts({"tracer": "cProfile"}), 8: RingFacts(tracer="pdb")}
    source = ProcessSource(table, 1.0)
    found = [record for _ in range(3) for record in source.read() if isinstance(record, Notice)]
    source.close()
    (message,) = [notice.message for notice in found if "traced" in notice.message]
    assert message.startswith("process 7 is being traced by cProfile") and "slower" in message
