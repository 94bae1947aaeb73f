"""Views beside the screen: fed at every tick and at the end; one that fails hurts nobody."""

from tests.monitor.test_monitor import Given, Process, steps, ticked_until
from tuimon.launch.child import ExitStatus
from tuimon.monitor.monitor import Monitor
from tuimon.records import Notice


class Watching:
    """Notes what it is shown; raises if it is to."""

    name = "watching"

    def __init__(self, error=None):
        self.error = error
        self.calls = []
        self.seen = 0

    def start(self):
        self.calls.append("start")

    def show(self, session, findings):
        self.calls.append("show")
        self.seen = max(self.seen, int(session.now_s))
        if self.error is not None:
            raise self.error
        return [Notice(t=session.now_s, pid=0, source=self.name, level="info", message="here")]

    def close(self, session, findings):
        self.calls.append("close" if session.exit is not None else "close early")
        if self.error is not None:
            raise self.error


def test_it_sees_every_tick_and_the_end():
    watching, process = Watching(), Process()
    monitor = Monitor([Given([steps(3.0)])], process=process, observers=[watching])
    monitor.start()
    ticked_until(monitor, lambda: watching.seen >= 3)
    process.ended = ExitStatus(0, None)
    ticked_until(monitor, lambda: monitor.ended)
    monitor.stop()
    assert watching.calls[0] == "start"
    assert watching.calls[-1] == "close"
    assert watching.calls.count("close") == 1
    assert monitor.session.notices["watching"].message == "here"


def test_one_that_raises_is_left_out_with_a_notice_and_the_others_go_on():
    broken, sound = Watching(ValueError("oh")), Watching()
    broken.name = "broken"
    monitor = Monitor([Given([steps(3.0)])], process=Process(), observers=[broken, sound])
    monitor.start()
    ticked_until(monitor, lambda: sound.seen >= 3)
    assert broken.calls == ["start", "show"]
    notice = monitor.session.notices["broken"]
    assert (notice.level, notice.message) == ("warning", "no longer kept up to date: ValueError: oh")
    monitor.stop()
    assert (broken.calls, sound.calls[-1]) == (["start", "show"], "close early")


def test_one_that_cannot_begin_is_left_out_with_a_notice():
    class Unable(Watching):
        def start(self):
            raise RuntimeError("can't start new thread")

    unable, sound = Unable(), Watching()
    unable.name = "unable"
    monitor = Monitor([Given([steps(3.0)])], process=Process(), observers=[unable, sound])
    monitor.start()
    ticked_until(monitor, lambda: sound.seen >= 3)
    assert unable.calls == []
    assert "can't start new thread" in monitor.session.notices["unable"].message
    monitor.stop()
