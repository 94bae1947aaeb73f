"""A training that runs in another thread than the main one: its lines, its waits and its phases are that thread's."""

import pytest

from tests.session.records import by_rule, extend, frames, hot_lines, loop, one_process, stacks, threads
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.views.tui.panes.threads_pane import SORTS

TORCH = "/lib/site-packages/torch"
TRAINER = 107
LINES = frames(
    ("app.py", 90, "main", "thread.join()", True),  # 0
    ("app.py", 20, "train", "for x, y in loader:", True),
    (f"{TORCH}/utils/data/dataloader.py", 5, "__next__"),
    ("app.py", 5, "__getitem__", "x = read(i)", True),
    ("app.py", 21, "train", "loss = model(x)", True),
    (f"{TORCH}/nn/modules/module.py", 6, "_call_impl"),  # 5
    ("app.py", 22, "train", "loss.backward()", True),
    (f"{TORCH}/autograd/__init__.py", 7, "backward"),
    (f"{TORCH}/autograd/function.py", 8, "apply"),
    ("app.py", 40, "backward", "return grad * 2", True),
)
MAIN = ([0], 100)
FETCH, FORWARD, BACKWARD = ([1, 2, 3], 60), ([4, 5], 20), ([6, 7], 20)
OWN_OF_AUTOGRAD = ([7, 8, 9], 50)
PHASES = {"data": 60, "forward": 20, "backward": 20}


def together(*windows):
    """One window with the samples of several threads."""
    (first, *others) = windows
    for other in others:
        first.stacks.extend(other.stacks)
    return first


def training(markers=True):
    """Twelve seconds of it."""
    session, rows = one_process(LINES, markers=markers), [(100, "python", 0.0, "sleeping", 0.0)]
    rows.append((TRAINER, "python", 0.7, "running", 0.25))
    for t in range(1, 13):
        extend(session, loop([t], PHASES, tid=TRAINER) if markers else (), threads(t, *rows))
        session.add(together(stacks(t, MAIN), stacks(t, FETCH, FORWARD, BACKWARD, tid=TRAINER)))
    return session


@pytest.mark.parametrize("markers", [True, False])
def test_its_phases_and_lines_are_those_of_the_thread_that_trains(markers):
    session = training(markers)
    assert session.over("recent").of(100).phases.inferred is not markers
    assert [line.place.line for line in hot_lines(session.over("recent"), 100, "data")] == [5]
    bound = by_rule(session)["input_bound"]
    assert (bound.where[0].function, bound.where[0].line) == ("__getitem__", 5)


@pytest.mark.parametrize("markers", [True, False])
def test_what_it_waits_for_a_core_is_what_that_thread_waits(markers):
    session = training(markers)
    thread = evidence_of(session.over("recent").of(100)).training
    known_late = {} if markers else {"rel": 0.1}  # samples show who trains once a window of threads has been folded
    assert (thread.cpu_ratio, thread.delay_ratio) == pytest.approx((0.7, 0.25), **known_late)
    assert {row.tid: row.role for row in session.over("recent").of(100).threads} == {100: "main", TRAINER: "training"}


def test_the_users_code_in_a_thread_of_autograds_own_trains_nothing():
    seen = [together(stacks(t, MAIN), stacks(t, OWN_OF_AUTOGRAD, tid=TRAINER)) for t in range(1, 13)]
    session = one_process(LINES, seen, markers=False)
    assert not session.over("recent").of(100).phases


def test_a_main_thread_that_trains_again_is_the_one_that_counts():
    session = training()
    extend(session, loop(range(13, 16), PHASES))
    assert session.over("recent").of(100).tid == 100
    assert [sample.node.ids for sample in session.over("recent").of(100).samples.rows] == [(0,)]


def test_samples_of_another_thread_that_trains_do_not_outweigh_markers():
    session = one_process(LINES, loop(range(1, 4), PHASES))
    session.add(together(stacks(3, FETCH), stacks(3, BACKWARD, tid=TRAINER)))
    assert session.over("recent").of(100).tid == 100


def test_the_thread_that_trains_stands_first():
    """What is chosen at first is what the hot lines and the stack are of."""
    rows = training().over("recent").of(100).threads
    assert [row.role for row in sorted(rows, key=SORTS[0][1])] == ["training", "main"]
