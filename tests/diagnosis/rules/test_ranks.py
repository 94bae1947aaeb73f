"""A late rank on literal sessions."""

import pytest

from tests.session.records import frames, header, process, stacks, steps
from tuimon.diagnosis import diagnose
from tuimon.session.session import Session

LINES = frames(
    ("train.py", 10, "main", "for x, y in loader:", True),
    ("train.py", 12, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("train.py", 11, "main", "loss = model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
)


def ranks(late_phases, other_phases):
    session = Session()
    for record in (header(), LINES):
        session.add(record)
    for pid, rank, phases in ((100, 0, other_phases), (101, 1, late_phases)):
        session.add(process(pid, rank=rank, world_size=2))
        for t in range(1, 9):
            session.add(steps(t, phases, pid=pid, first_index=10 * t))
    session.add(stacks(8, ([1, 2], 20), ([3, 4], 60), pid=101))
    return {finding.rule: finding for finding in diagnose(session)}


def test_the_rank_that_waits_least_in_backward_is_the_culprit():
    late, other = {"forward": 60, "backward": 40}, {"forward": 20, "backward": 80}
    finding = ranks(late, other)["straggler_rank"]
    assert (finding.severity, finding.evidence["rank"], finding.where[0].line) == ("critical", 1, 11)
    assert finding.share_of_step == pytest.approx(0.4)
    assert finding.headline == (
        "rank 0 waits 40 % of every step for rank 1, 40 ms longer in forward at main() train.py:11"
    )


def test_a_short_backward_without_anything_longer_is_no_straggler():
    assert "straggler_rank" not in ranks({"forward": 20, "backward": 50}, {"forward": 20, "backward": 80})


def test_even_ranks_have_no_straggler():
    even = {"forward": 50, "backward": 50}
    assert "straggler_rank" not in ranks(even, even)
