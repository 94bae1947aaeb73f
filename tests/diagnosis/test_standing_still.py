"""While a loop stands still nothing is said of its steps, and a pause changes no verdict."""

from tests.session.records import extend, one_process, steps, thread
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.session.state import stands_still

#: Steps of 100 ms, of which 70 are data.
DATA = {"data": 70, "forward": 20, "backward": 10}


def judged(*, open_s, cpu_ratio=0.5, then=0):
    """A training that waits for its data for 20 s, then makes no step for as many seconds, and then ``then`` more."""
    verdicts, shown = Verdicts(session := one_process()), []

    def moment(t, record):
        extend(session, (record, thread(t, cpu_ratio, state="waiting")))
        shown.append([finding.rule for finding in verdicts.judge()])

    for t in range(1, 21):
        moment(t, steps(t, DATA, first_index=10 * t))
    for passed in range(1, open_s + 1):
        still = {"count": 0, "first_index": 210, "backwards": 0, "open_phase": "backward", "open_for_s": passed}
        moment(20 + passed, steps(20 + passed, {}, **still))
    for t in range(21 + open_s, 21 + open_s + then):
        moment(t, steps(t, DATA, first_index=210 + 10 * (t - 21 - open_s)))
    return shown, verdicts, session


def test_once_no_boundary_has_come_for_five_seconds_steps_are_not_judged():
    shown, _, session = judged(open_s=12)
    assert shown[19][0] == "input_bound" and shown[23][0] == "input_bound"
    assert shown[24:] == [[]] * 8
    assert stands_still(session)


def test_a_pause_is_no_change_of_the_verdict():
    shown, verdicts, _ = judged(open_s=12, then=5)
    assert shown[-1][0] == "input_bound"
    assert not verdicts.changes


def test_a_hang_is_one():
    shown, verdicts, _ = judged(open_s=26, cpu_ratio=0.0)
    assert shown[24:30] == [[]] * 6 and shown[-1] == ["hang"]
    assert [(change.before, change.after) for change in verdicts.changes][-1][1] == "hang"
