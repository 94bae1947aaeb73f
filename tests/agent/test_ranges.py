"""Ranges of NVTX and of decorated functions become markers; what calls do and return stays the user's."""

import asyncio
import inspect
import types

import pytest

import tuimon
from tuimon.agent import ranges
from tuimon.agent.ring.layout import MARK, RANGE_POP, RANGE_PUSH
from tuimon.agent.torch_compat import rebinding


class Native:
    """What ``torch._C._nvtx`` is in a CUDA build."""

    def __init__(self):
        self.calls = []

    def rangePushA(self, message):
        if not isinstance(message, str):
            raise TypeError("message must be str")
        self.calls.append(("push", message))
        return len(self.calls) - 1

    def rangePop(self):
        self.calls.append(("pop",))
        return 7

    def markA(self, message):
        self.calls.append(("mark", message))

    def deviceRangeStart(self, message, stream):
        return "device"


@pytest.fixture
def markers(monitored):
    """Kind, name and place of each, until the hooks are gone."""
    yield lambda: [(kind, name, place) for kind, (name, *place) in monitored()]
    rebinding.undo_all()


@pytest.fixture
def torch_nvtx(markers, monkeypatch):
    """The real module ``torch.cuda.nvtx`` over a native part that works."""
    torch = pytest.importorskip("torch")
    rebinding.undo_all()
    module = torch.cuda.nvtx
    module.native = Native()
    monkeypatch.setattr(module, "_nvtx", module.native)
    early = types.SimpleNamespace(**{name: getattr(module, name) for name in module.__all__})
    ranges.hook_nvtx(module)
    yield module, early
    rebinding.undo_all()
    del module.native


@pytest.mark.parametrize("imported", ["after", "before"])
def test_push_pop_mark(torch_nvtx, markers, imported):
    module, early = torch_nvtx
    api = module if imported == "after" else early
    assert api.range_push("forward") == 0
    api.mark("here")
    assert api.range_pop() == 7
    assert module.native.calls == [("push", "forward"), ("mark", "here"), ("pop",)]
    found = markers()
    assert [(kind, name) for kind, name, _ in found[:2]] == [(RANGE_PUSH, "forward"), (MARK, "here")]
    assert found[2][0] == RANGE_POP
    assert {(place[0], place[1]) for _, _, place in found} == {(__file__, "test_push_pop_mark")}
    (push, _, pop) = (int(place[2]) for _, _, place in found)
    assert pop == push + 2  # where the range was closed


def test_the_context_manager_names_the_users_line(torch_nvtx, markers):
    module, _ = torch_nvtx
    with module.range("batch {}", 3):
        pass

    @module.range("decorated")
    def work():
        return 1

    assert work() == 1
    found = markers()
    assert [kind for kind, _, _ in found] == [RANGE_PUSH, RANGE_POP] * 2
    assert [name for kind, name, _ in found if kind == RANGE_PUSH] == ["batch 3", "decorated"]
    assert {place[0] for kind, _, place in found if kind == RANGE_PUSH} == {__file__}


def test_wrong_arguments_fail_as_ever_and_leave_no_marker(torch_nvtx, markers):
    module, _ = torch_nvtx
    with pytest.raises(TypeError, match="message must be str"):
        module.range_push(3)
    with pytest.raises(TypeError):
        module.range_push()
    assert markers() == []


def test_everything_else_of_the_native_module_is_there(torch_nvtx):
    module, _ = torch_nvtx
    assert module._nvtx.deviceRangeStart("x", 0) == "device"
    assert not hasattr(module._nvtx, "no_such_function")


def test_a_cpu_build_says_so_itself_and_leaves_no_marker(markers):
    torch = pytest.importorskip("torch")
    if torch.version.cuda:
        pytest.skip("a CUDA build")
    rebinding.undo_all()
    ranges.hook_nvtx(torch.cuda.nvtx)
    for call in (lambda: torch.cuda.nvtx.range_push("a"), torch.cuda.nvtx.range_pop):
        with pytest.raises(RuntimeError, match="NVTX functions not installed"):
            call()
    with pytest.raises(RuntimeError, match="NVTX functions not installed"), torch.cuda.nvtx.range("b"):
        pass
    assert markers() == []


@pytest.fixture
def package(markers):
    """NVIDIA's own, hooked."""
    own = pytest.importorskip("nvtx")
    rebinding.undo_all()
    ranges.hook_nvtx_package(own)
    return own


def test_functions_of_the_package(package, markers):
    package.push_range("a", color="red")
    package.nvtx.mark(message="m")
    package.pop_range()
    found = markers()
    assert [kind for kind, _, _ in found] == [RANGE_PUSH, MARK, RANGE_POP]
    assert [found[i][1] for i in (0, 1)] == ["a", "m"]
    assert {found[i][2][0] for i in (0, 1)} == {__file__}


def test_annotate(package, markers):
    with package.annotate("block", color="green") as entered:
        assert isinstance(entered, package.annotate)

    @package.annotate()
    def work(x):
        return x + 1

    assert work(1) == 2 and work.__name__ == "work"
    with pytest.raises(KeyError), package.annotate("failing"):
        raise KeyError
    found = markers()
    assert [kind for kind, _, _ in found] == [RANGE_PUSH, RANGE_POP] * 3
    assert [(name, place[1]) for kind, name, place in found if kind == RANGE_PUSH] == [
        ("block", "test_annotate"),
        ("work", "work"),
        ("failing", "test_annotate"),
    ]


def test_the_package_is_left_as_it_was(package):
    hooked = package.push_range, package.annotate.__enter__, package.nvtx.mark
    rebinding.undo_all()
    plain = package.push_range, package.annotate.__enter__, package.nvtx.mark
    assert plain == tuple(function.__wrapped__ for function in hooked)


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
    assert str(inspect.signature(double, eval_str=True)) == "(x: int) -> int"


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
