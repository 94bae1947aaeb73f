"""Which ranks are looked at one by one, and that a straggler among many is always one of them."""

import gc
from itertools import pairwise

import pytest

from tests.session.records import header, process, stacks, steps, threads
from tuimon.diagnosis import diagnose
from tuimon.diagnosis.evidence import evidence
from tuimon.diagnosis.evidence.evidence import Evidence, evidence_of
from tuimon.diagnosis.evidence.ranks.chosen_ranks import chosen_ranks
from tuimon.session.rank_list import rank_rows
from tuimon.session.session import Session

COUNT, LATE = 300, 217


def many(count=COUNT, late=LATE):
    session = Session()
    session.add(header(cpu_count=64))
    for rank in range(count):
        pid = 1000 + rank
        session.add(process(pid, rank=rank, world_size=count, ppid=50, python="3.11.7"))
        data = 40 if rank == late else 5
        for t in (1, 2, 3):
            session.add(threads(t, (pid, "python", 0.9 if rank == late else 0.5, "running", 0.0), pid=pid))
            session.add(steps(t, {"data": data, "backward": 95 - data}, pid=pid, first_index=10 * t))
        session.add(stacks(3, ([0], 40), pid=pid))
    return session


def test_of_few_ranks_all_are():
    rows = rank_rows(many(8, 3))
    assert chosen_ranks(1000, rows) == {1000 + rank for rank in range(8)}


def test_of_many_the_latest_and_an_even_choice_are():
    chosen = chosen_ranks(1001, rank_rows(many()))
    assert {1001, 1000 + LATE} <= chosen and len(chosen) <= 33
    spread = sorted(chosen)
    assert max(after - before for before, after in pairwise(spread)) <= 14


def test_no_rule_looks_at_all_of_many_one_by_one():
    compared = evidence_of(many(), 1001).compared
    assert {1001, 1000 + LATE} <= {rank.pid for rank in compared} and len(compared) <= 33


def test_another_training_of_the_command_is_not_compared():
    session = many(4, 2)
    for rank in range(2):
        session.add(process(2000 + rank, rank=rank, world_size=2, ppid=60, python="3.11.7"))
        session.add(steps(3, {"data": 5, "backward": 90}, pid=2000 + rank))
    assert {rank.pid for rank in evidence_of(session, 1000).compared} == {1000, 1001, 1002, 1003}
    session.focus_on(2001)
    assert {rank.pid for rank in evidence_of(session, 2001).compared} == {2000, 2001}


def test_the_evidence_of_many_ranks_is_gone_once_it_is_judged():
    session = many(40, 7)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert diagnose(session)
        gc.collect()
        assert not [left for left in gc.garbage if isinstance(left, Evidence)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_nothing_of_a_gpu_is_worked_out_for_ranks_without_gpu_times(monkeypatch: pytest.MonkeyPatch):
    worked_out = []
    monkeypatch.setattr(evidence, "gpu_steps", lambda *facts: worked_out.append(facts))
    assert evidence_of(many(8, 3), 1000).exchanges == {}
    assert not worked_out
