"""NVTX: ranges become markers; what the user's calls do and return stays theirs."""

import sys
import types

import pytest

from tuimon.agent import runtime
from tuimon.agent.ranges import nvtx
from tuimon.agent.ring import layout
from tuimon.agent.ring.layout import MARK, RANGE_POP, RANGE_PUSH
from tuimon.agent.ring.reader import RingReader
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
def markers(monkeypatch, shared_memory):
    monkeypatch.setattr(runtime, "on", True)
    monkeypatch.setattr(runtime, "is_compiling", lambda: False)
    assert runtime.open_ring()
    reader = RingReader(runtime.writer().path)

    def read():
        found = []
        for marker in reader.read():
            place = reader.name(marker.value).split(layout.PLACE_SEPARATOR)
            found.append((marker.kind, place[0], place[1:]))
        return found

    read.reader = reader
    yield read
    reader.close()
    rebinding.undo_all()
    runtime.stop()


@pytest.fixture
def torch_nvtx(markers, monkeypatch):
    """The real module ``torch.cuda.nvtx`` over a native part that works."""
    torch = pytest.importorskip("torch")
    rebinding.undo_all()
    module = torch.cuda.nvtx
    module.native = Native()
    monkeypatch.setattr(module, "_nvtx", module.native)
    early = types.SimpleNamespace(**{name: getattr(module, name) for name in module.__all__})
    nvtx.hook_torch(module)
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
    nvtx.hook_torch(torch.cuda.nvtx)
    for call in (lambda: torch.cuda.nvtx.range_push("a"), torch.cuda.nvtx.range_pop):
        with pytest.raises(RuntimeError, match="NVTX functions not installed"):
            call()
    with pytest.raises(RuntimeError, match="NVTX functions not installed"), torch.cuda.nvtx.range("b"):
        pass
    assert markers() == []


PACKAGE = '''
"""A package with the interface of NVIDIA's nvtx."""
from nvtx_like.nvtx import annotate, push_range, pop_range, mark
'''
MODULE = """
import contextlib
from functools import wraps

calls = []

class annotate:
    def __init__(self, message=None, color=None, domain=None):
        self.init_args = message, color, domain
    def __reduce__(self):
        return self.__class__, self.init_args
    def __enter__(self):
        calls.append(("enter", self.init_args[0]))
        return self
    def __exit__(self, *error):
        calls.append(("exit",))
        return False
    def __call__(self, function):
        @wraps(function)
        def inner(*args, **kwargs):
            calls.append(("call", self.init_args[0]))
            return function(*args, **kwargs)
        return inner

def push_range(message=None, color="blue", domain=None): calls.append(("push", message))
def pop_range(domain=None): calls.append(("pop",))
def mark(message=None, color="blue", domain=None): calls.append(("mark", message))
"""


@pytest.fixture
def package(markers, tmp_path, monkeypatch):
    folder = tmp_path / "nvtx_like"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "nvtx.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import nvtx_like

    nvtx.hook_package(nvtx_like)
    yield nvtx_like
    for name in ("nvtx_like", "nvtx_like.nvtx"):
        del sys.modules[name]


def test_functions_of_the_package(package, markers):
    package.push_range("a", color="red")
    package.mark(message="m")
    package.pop_range()
    assert package.nvtx.calls == [("push", "a"), ("mark", "m"), ("pop",)]
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
    found = markers()
    assert [kind for kind, _, _ in found] == [RANGE_PUSH, RANGE_POP] * 2
    assert [(name, place[1]) for kind, name, place in found if kind == RANGE_PUSH] == [
        ("block", "test_annotate"),
        ("work", "work"),
    ]


def test_annotate_does_not_swallow_exceptions(package, markers):
    with pytest.raises(KeyError), package.annotate("block"):
        raise KeyError
    assert [kind for kind, _, _ in markers()] == [RANGE_PUSH, RANGE_POP]


def test_the_package_is_left_as_it_was(package):
    hooked = package.push_range, package.annotate.__enter__, package.nvtx.mark
    rebinding.undo_all()
    plain = package.push_range, package.annotate.__enter__, package.nvtx.mark
    assert plain == tuple(function.__wrapped__ for function in hooked)


def test_nvidias_own_package(markers):
    package = pytest.importorskip("nvtx")
    rebinding.undo_all()
    nvtx.hook_package(package)
    with package.annotate("block"):
        package.mark("m")
    package.push_range("p")
    package.pop_range()
    assert [kind for kind, _, _ in markers()] == [RANGE_PUSH, MARK, RANGE_POP, RANGE_PUSH, RANGE_POP]
