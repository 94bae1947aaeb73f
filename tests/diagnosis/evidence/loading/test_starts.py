"""Workers that are started anew for every epoch, seen by samples alone."""

import pytest

from tests.diagnosis.cpu import NO_GPU
from tests.session.records import frames, header, process, stacks
from tuimon.diagnosis import diagnose
from tuimon.session.session import Session

DATALOADER = "/lib/site-packages/torch/utils/data/dataloader.py"
LOOP = frames(
    ("train.py", 44, "main", "for x, y in loader:", True),
    (DATALOADER, 438, "_get_iterator"),
    (DATALOADER, 1176, "__init__"),
    (DATALOADER, 725, "__next__"),
    (DATALOADER, 1654, "_shutdown_workers"),
    ("/lib/python3.11/selectors.py", 415, "select"),
    ("train.py", 46, "main", "loss.backward()", True),
    ("/lib/site-packages/torch/autograd/__init__.py", 9, "backward"),
)
STARTING, ENDING, WAITING, BACKWARD = [0, 1, 2], [0, 3, 4, 5], [0, 3, 5], [6, 7]


def attached(waiting, *, anew):
    """Two workers, new ones each second if ``anew``; the data phase waits for batches in so many samples of 40."""
    session = Session()
    for record in (header(), process(markers=False), NO_GPU, LOOP):
        session.add(record)
    for t in range(1, 13):
        for number in (0, 1):
            pid = 200 + number + (2 * t if anew else 0)
            session.add(process(pid, "worker", ppid=100, t=t - 0.9))
            if anew:
                session.add(process(pid, "worker", ppid=100, t=t - 0.1, ended=True))
        starts = 40 - waiting
        session.add(
            stacks(t, (STARTING, starts // 2), (ENDING, starts - starts // 2), (WAITING, waiting), (BACKWARD, 40))
        )
    return session


@pytest.mark.parametrize(("waiting", "anew", "told"), [(10, True, True), (30, True, False), (10, False, False)])
def test_their_starts_are_the_cause_where_most_of_the_wait_is_there(waiting, anew, told):
    first = next(finding for finding in diagnose(attached(waiting, anew=anew)) if finding.rule == "input_bound")
    assert ("started anew for every epoch" in first.headline) == told
    assert any("persistent_workers=True: the 2 workers" in fix.action for fix in first.fixes) == anew


def test_keeping_them_gains_no_more_than_the_starts_take():
    """Of 80 samples 30 are starts; workers of whom nothing else is known may set the pace meanwhile."""
    first, *_ = diagnose(attached(10, anew=True))
    keeping = next(fix for fix in first.fixes if "persistent_workers" in fix.action)
    assert 1.3 <= keeping.low <= keeping.high <= 80 / 50 + 0.01
