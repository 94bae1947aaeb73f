"""Evidence is of one moment, and each of its sections is read once."""

from collections import Counter

import pytest

from tests.session.records import loop, one_process, stacks, steps, thread
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.judging import diagnose, unjudged
from tuimon.session.session import Session, SessionView


def training():
    return one_process(
        loop(12, {"data": 62, "forward": 11, "backward": 27}),
        thread(12, 0.4, 0.0),
        stacks(12, ([1, 2], 50)),
    )


def test_a_diagnosis_reads_every_section_of_the_session_once(monkeypatch):
    calls = Counter()

    def counted(name, read):
        def call(*args):
            calls[(name, *args[1:])] += 1
            return read(*args)

        return call

    for name in ("phases", "processes", "threads_of", "loaders"):
        monkeypatch.setattr(SessionView, name, counted(name, getattr(SessionView, name)))
    session = training()
    assert diagnose(session)
    assert unjudged(session)
    assert calls["phases", 100] == 1
    assert max(calls.values()) == 1


def test_evidence_refuses_to_mix_two_moments():
    session = training()
    evidence = evidence_of(session.over("recent"), 100)
    assert evidence.phases.row("data").share == pytest.approx(0.62)
    session.add(steps(13, {"data": 1, "forward": 99}, first_index=120))
    assert evidence.phases.row("data").share == pytest.approx(0.62)  # read before
    with pytest.raises(RuntimeError, match="out of date"):
        _ = evidence.samples


def test_nothing_is_found_in_nothing():
    assert diagnose(Session()) == []
