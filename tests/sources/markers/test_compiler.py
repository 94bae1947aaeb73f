"""Markers of torch.compile's work, and the records and sums that come of them."""

from types import SimpleNamespace

from tuimon.agent.ring.layout import Event
from tuimon.agent.torch_compat.compilations import text_of
from tuimon.records import CompilerEvents
from tuimon.sources.markers.follower import CompilerTracker

CODE = ("/me/net.py", 7, "forward")
NAMES = {
    1: text_of(Event("recompiled", 0, CODE, "L['n'] == N", "/me/net.py:9")),
    2: text_of(Event("graph_break", 0, ("/me/net.py", 12, "forward"), "print")),
    3: "damaged",
}


def test_a_window_has_one_record_with_counts_and_times():
    found = CompilerTracker(SimpleNamespace(name=NAMES.get))
    for flag, value in ((1, 400), (1, 200), (2, 3), (3, 5), (9, 5), (1, -1)):
        found.add_marker(flag, value)
    (record,) = found.records(5.0, 42, 1.0)
    assert record.events == [
        CompilerEvents("recompiled", 2, 600, *CODE, "L['n'] == N", "/me/net.py:9"),
        CompilerEvents("graph_break", 3, 0, "/me/net.py", 12, "forward", "print"),
    ]
    assert list(found.records(6.0, 42, 1.0)) == []


def test_what_was_compiled_before_anybody_watched_is_dropped_and_a_broken_graph_stays():
    found = CompilerTracker(SimpleNamespace(name=NAMES.get))
    found.add_marker(1, 400)
    found.add_marker(2, 3)
    found.skip_past()
    (record,) = found.records(5.0, 42, 1.0)
    assert [event.what for event in record.events] == ["graph_break"]
