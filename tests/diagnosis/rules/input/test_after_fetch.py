"""Batches that the loop changes after it has fetched them: by the markers, that is part of the forward pass."""

import pytest

from tests.diagnosis.cpu import AUGMENT, BACKWARD, FORWARD, NO_GPU, run
from tests.session.records import by_rule, frames, one_process, stacks
from tuimon.diagnosis.finding import Finding
from tuimon.records import Loader, LoaderFacts

LOOP = frames(
    ("train.py", 10, "main", "for x in loader:", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_fetch"),
    ("train.py", 11, "main", "x = mix(x)", True),
    ("train.py", 30, "mix", "x[i] = x[j]", True),
    first=50,
)
PHASES = {"data": 10, "forward": 60, "backward": 30}


def found(mixing: int, workers: int, fetching: int = 10) -> dict[str, Finding]:
    samples = ([50, 51], fetching), ([52, 53], mixing), (FORWARD, 60 - mixing), (BACKWARD, 30)
    loader = Loader(t=12, pid=100, number=0, window_s=1.0, fetches=10, facts=LoaderFacts("Rows", "map", workers))
    seen = stacks(12, *(sample for sample in samples if sample[1]))
    return {finding.rule: finding for finding in run(PHASES, LOOP, loader, seen, cpu_count=4)}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_line_that_changes_the_batch_is_named_as_what_makes_the_data(workers: int) -> None:
    finding = found(mixing=45, workers=workers)["input_bound"]
    assert (finding.cause, finding.where[0].line) == ("hand_rolled_loader", 30)
    assert finding.share_of_step == pytest.approx(0.55, abs=0.02)
    (free,) = (fix for fix in finding.fixes if "make mix() train.py:30 cheaper" in fix.action)
    assert free.estimated_speedup == pytest.approx(1 / 0.55, rel=0.1)


def test_a_little_of_it_leaves_the_loader_the_cause() -> None:
    finding = found(mixing=12, workers=0, fetching=20)["input_bound"]
    assert finding.cause == "no_workers"


@pytest.mark.parametrize(
    ("fetching", "mixing", "cause"),
    [(4, 46, "hand_rolled_loader"), (46, 4, "no_workers"), (0, 50, "hand_rolled_loader")],
)
def test_without_markers_samples_show_whether_most_of_it_is_fetched(fetching: int, mixing: int, cause: str) -> None:
    counted = (([50, 51], fetching), ([52, 53], mixing), (FORWARD, 25), (BACKWARD, 25))
    sampled = [stacks(t, *(sample for sample in counted if sample[1])) for t in range(1, 13)]
    assert by_rule(one_process(NO_GPU, AUGMENT, LOOP, sampled, markers=False))["input_bound"].cause == cause
