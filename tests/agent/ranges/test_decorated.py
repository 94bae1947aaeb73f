"""``tuimon.phase`` as a decorator, on functions of every kind."""

import asyncio
import inspect

import pytest

import tuimon
from tuimon.agent.ring.layout import RANGE_POP, RANGE_PUSH


def kinds(read):
    return [kind for kind, _ in read()]


def test_a_decorated_function(monitored):
    @tuimon.phase("work")
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    assert double(4) == 8
    (push, name), (pop, _) = monitored()
    assert (push, pop) == (RANGE_PUSH, RANGE_POP)
    assert name == ["work", __file__, "double", str(double.__wrapped__.__code__.co_firstlineno)]
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert str(inspect.signature(double)) == "(x: int) -> int"


def test_a_decorated_function_that_raises(monitored):
    @tuimon.phase("work")
    def fail():
        raise KeyError("k")

    with pytest.raises(KeyError):
        fail()
    assert kinds(monitored) == [RANGE_PUSH, RANGE_POP]


def test_things_without_code(monitored):
    assert tuimon.phase("length")(len)("abc") == 3
    assert [name[0] for _, name in monitored()] == ["length", "?"]


def test_a_decorated_generator_counts_what_it_does_itself(monitored):
    @tuimon.phase("batches")
    def generator():
        got = []
        try:
            got.append((yield 1))
            try:
                yield 2
            except KeyError:
                got.append("thrown")
            yield 3
        finally:
            got.append("closed")
        return got

    assert inspect.isgeneratorfunction(generator)
    running = generator()
    assert kinds(monitored) == []
    assert next(running) == 1
    assert kinds(monitored) == [RANGE_PUSH, RANGE_POP]
    assert running.send("sent") == 2
    assert running.throw(KeyError()) == 3
    with pytest.raises(StopIteration) as stopped:
        next(running)
    assert stopped.value.value == ["sent", "thrown", "closed"]
    assert kinds(monitored) == [RANGE_PUSH, RANGE_POP] * 3
    abandoned = generator()
    next(abandoned)
    abandoned.close()
    assert list(generator()) == [1, 2, 3]


def test_a_decorated_generator_passes_errors_on(monitored):
    @tuimon.phase("batches")
    def generator():
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(generator())
    assert kinds(monitored) == [RANGE_PUSH, RANGE_POP] * 2


def test_a_coroutine_stays_as_it_is(monitored):
    """Those of one thread overlap, and ranges nest: a number would be made up."""

    async def fetch():
        return 5

    decorated = tuimon.phase("fetch")(fetch)
    assert decorated is fetch and asyncio.run(decorated()) == 5
    assert kinds(monitored) == []
