"""Views beside the screen: fed at every tick and at the end; one that fails hurts nobody."""

import pytest

from tests.monitor.test_monitor import Given, Process, begun, steps, ticked_until
from tuimon.launch.child import ExitStatus
from tuimon.records import Notice


class Watching:
    """Notes what it is shown; raises where it is to."""

    name = "watching"

    def __init__(self, fails=None):
        self.fails, self.calls, self.seen = fails, [], 0

    def _called(self, what):
        self.calls.append(what)
        if what == self.fails:
            raise ValueError("oh")

    def show(self, session, findings):
        self.seen = max(self.seen, int(session.now_s))
        self._called("show")
        return [Notice(t=session.now_s, pid=0, source=self.name, level="info", message="here")]

    def close(self, session, findings):
        self._called("close" if session.exit is not None else "close early")


def test_it_sees_every_tick_and_the_end():
    watching, process = Watching(), Process()
    monitor = begun([Given([steps(3.0)])], process=process, observers=[watching])
    ticked_until(monitor, lambda: watching.seen >= 3)
    process.ended = ExitStatus(0, None)
    ticked_until(monitor, lambda: monitor.ended)
    monitor.stop()
    assert (watching.calls[0], watching.calls[-1], watching.calls.count("close")) == ("show", "close", 1)
    assert monitor.session.notices["watching"].message == "here"


@pytest.mark.parametrize("fails", ["show", "close early"])
def test_one_that_raises_is_left_out_with_a_notice_and_the_others_go_on(fails):
    broken, sound = Watching(fails), Watching()
    broken.name = "broken"
    monitor = begun([Given([steps(3.0)])], process=Process(), observers=[broken, sound])
    ticked_until(monitor, lambda: sound.seen >= 3)
    if fails != "close early":
        notice = monitor.session.notices["broken"]
        assert (notice.level, notice.message) == ("warning", "no longer kept up to date: ValueError: oh")
    monitor.stop()
    assert (broken.calls[-1], broken.calls.count(fails), sound.calls[-1]) == (fails, 1, "close early")
