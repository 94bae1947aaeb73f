"""Evidence is of one moment, and each of its sections is read once."""

import pytest

from tests.session.records import loop, one_process, stacks, steps, thread
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.judging import diagnose, unjudged
from tuimon.session.session import Session


def training():
    return one_process(
        loop(12, {"data": 62, "forward": 11, "backward": 27}),
        thread(12, 0.4, 0.0),
        stacks(12, ([1, 2], 50)),
    )


def test_rules_and_panes_share_the_figures_of_a_process():
    session = training()
    assert diagnose(session)
    assert unjudged(session)
    view = session.over("recent")
    evidence, own = evidence_of(view.of(100)), view.of(100)
    assert (evidence.phases, evidence.threads, evidence.loaders) == (own.phases, own.threads, own.loaders)
    assert (evidence.phases is own.phases) and (evidence.threads is own.threads)


def test_evidence_refuses_to_mix_two_moments():
    session = training()
    evidence = evidence_of(session.over("recent").of(100))
    assert evidence.phases.row("data").share == pytest.approx(0.62)
    session.add(steps(13, {"data": 1, "forward": 99}, first_index=120))
    assert evidence.phases.row("data").share == pytest.approx(0.62)  # read before
    with pytest.raises(RuntimeError, match="out of date"):
        _ = evidence.samples


def test_nothing_is_found_in_nothing():
    assert diagnose(Session()) == []
