"""Captures of CUDA graphs are known while they are open, in whatever thread."""

import threading
from types import SimpleNamespace

import pytest

from tuimon.agent.torch_compat import captures, rebinding


class Graph:
    def __init__(self, seen):
        self.seen = seen

    def capture_begin(self, pool=None):
        self.seen.append(captures.any_open())
        if pool == "bad":
            raise RuntimeError("cannot capture")

    def capture_end(self):
        self.seen.append(captures.any_open())
        if self.seen[0] == "broken":
            raise RuntimeError("invalidated")


@pytest.fixture
def graph_class():
    """A class of graphs that is followed; and what is undone at the end."""

    class Followed(Graph):
        capture_begin = Graph.capture_begin
        capture_end = Graph.capture_end

    waited = []
    captures.hook(SimpleNamespace(CUDAGraph=Followed), lambda: waited.append(captures.any_open()))
    Followed.waited = waited
    yield Followed
    rebinding.undo_all()


def test_a_capture_is_known_from_before_it_begins_until_it_has_ended(graph_class):
    graph = graph_class([])
    assert not captures.any_open()
    graph.capture_begin()
    assert captures.any_open() and graph_class.waited == [True]
    graph.capture_end()
    assert not captures.any_open()
    assert graph.seen == [True, True]


def test_captures_that_fail_are_over(graph_class):
    with pytest.raises(RuntimeError, match="cannot capture"):
        graph_class([]).capture_begin(pool="bad")
    assert not captures.any_open()
    graph = graph_class(["broken"])
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="invalidated"):
        graph.capture_end()
    assert not captures.any_open()


def test_a_capture_in_another_thread_counts(graph_class):
    assert not captures.any_open()
    graph = graph_class([])
    thread = threading.Thread(target=graph.capture_begin)
    thread.start()
    thread.join()
    assert captures.any_open()
    graph.capture_end()
    assert not captures.any_open()


def test_a_torch_without_graphs():
    captures.hook(SimpleNamespace(), lambda: None)
    captures.hook(SimpleNamespace(CUDAGraph=object), lambda: None)
