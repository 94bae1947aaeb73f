"""Where threads are, by the latest window of samples."""

from tests.session import records
from tests.session.records import session_of
from tuimon.records import Stacks

PHASES = {"forward": 40, "backward": 60}


def place(session):
    (row,) = [row for row in session.over("recent").threads() if row.tid == 100]
    return row.place and row.place.function


def test_samples_of_the_set_up_say_nothing_of_a_thread_that_trains():
    set_up = records.stacks(5.0, ([0], 20))
    setting_up = Stacks(**{**{f: getattr(set_up, f) for f in set_up.__struct_fields__}, "t": 6.0, "window_s": 4.0})
    session = session_of(
        records.header(),
        records.process(),
        records.frames(("/p/train.py", 3, "load", "import torch", True), ("/p/train.py", 9, "train", "f()", True)),
        records.threads(5.0, (100, "python", 0.5, "running")),
        set_up,
    )
    assert place(session) == "load"
    session.add(records.steps(6.0, PHASES, first_step_s=5.0, first_backward_s=5.0))
    session.add(setting_up)
    assert place(session) is None
    session.add(records.stacks(7.0, ([1], 20)))
    assert place(session) == "train"
