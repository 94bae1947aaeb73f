"""Warm-up on literal sessions."""

from tests.diagnosis.cpu import HEALTHY, STARVED
from tests.session.records import extend, header, loop, process, session_of, steps, threads
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.judging import diagnose
from tuimon.records import MachineMemory


def test_nothing_is_judged_during_warmup():
    session = session_of(header(), steps(1, {}, count=0))
    assert diagnose(session) == []
    session.add(steps(2, {"data": 9000, "forward": 1}, count=1))
    assert [f.rule for f in diagnose(session)] == ["warmup"]
    extend(session, loop(range(3, 20), STARVED))
    assert diagnose(session)[0].rule == "input_bound"


def test_before_the_first_step_there_is_no_finding_but_of_harm():
    held = threads(9, (100, "python", 1.0, "running", 0.9), (7, "x", 1.0, "running", 0.9), pid=100, cpu_ratio=2.0)
    session = session_of(header(cpu_count=1), process(), steps(8, {}, count=0), held)
    demand = evidence_of(session.over("recent").of(100)).machine.demand
    assert demand.wanted > 3  # which is far too much, but of what will not last
    assert diagnose(session) == []
    session.add(MachineMemory(t=9, pid=0, window_s=1, total_bytes=100 << 30, available_bytes=1 << 30))
    assert [f.rule for f in diagnose(session)] == ["memory_pressure"]


def test_a_slow_first_step_is_warmup_for_a_while():
    session = session_of(header(), steps(1, {"data": 9000, "forward": 1}, count=1), steps(2, HEALTHY, first_index=1))
    (only,) = diagnose(session)
    assert "x the median" in only.headline
