"""What a signal handler raises while the agent's code runs reaches the program; what the agent raises does not."""

import ast
import ctypes
import functools
import importlib
import json
import linecache
import os
import signal
import sys
from _thread import get_ident

import pytest

from tests.agent.programs import AGENT, ROOT, environment, printed_json, python
from tests.waiting import until
from tests.warm_torch import warm_python
from tuimon.agent.outside import raised_by_us, shielded, undisturbed

pytestmark = pytest.mark.trust

#: Functions (or whole files) with an ``except`` that may catch what comes from outside, and why.
KEPT = {
    ("boot.py", "begin"): "raises it afterwards",
    ("boot.py", "_wait"): "raises it afterwards",
    ("boot.py", "_load"): "a thread of its own, in which no handler runs",
    ("boot.py", "_answer"): "in the same thread",
    ("boot.py", "go_on"): "in the same thread",
    ("control/stack_sampler.py", "_run"): "a thread of its own",
    ("control/trace_lines.py", "_run"): "a thread of its own",
    ("inject/sitecustomize.py", ""): "runs before the program's first line",
    ("outside.py", "guarded_calls"): "raises it afterwards",
    ("outside.py", "run"): "a thread of its own",
    ("outside.py", "undisturbed"): "raises it afterwards",
    ("ranges/decorated.py", "tuimon_phase"): "goes on into the program's generator",
    ("ring/reader.py", ""): "is the monitor's",
    ("ring/ring_bytes.py", ""): "is the monitor's",
    ("thread_end.py", "__del__"): "nothing that it raises would go further",
}


class Late(TimeoutError):
    """What the handlers raise."""


def plain(kind, signum, frame):
    raise kind("late")


class Handlers:
    """Handlers of all shapes; the arguments of some do not show what they are."""

    def method(self, signum, frame):
        raise Late("late")

    def __call__(self, signum, frame):
        raise Late("late")

    @staticmethod
    def deleting(signum, frame):
        del signum, frame
        raise Late("late")

    @staticmethod
    def resetting(signum, frame):
        signal.signal(signum, signal.SIG_DFL)
        raise Late("late")

    @staticmethod
    def any_arguments(*arguments):
        raise Late("late")

    @staticmethod
    @functools.wraps(plain)
    def nested(*arguments):
        Handlers().method(*arguments)


SHAPES = {
    "function": functools.partial(plain, Late),
    "method": Handlers().method,
    "object": Handlers(),
    "deleting": Handlers.deleting,
    "partial": functools.partial(functools.partial(Handlers.deleting)),
    "resetting": Handlers.resetting,
    "arguments": Handlers.any_arguments,
    "nested": Handlers.nested,
    "lambda": lambda signum, frame: {}.popitem(),
}


@pytest.fixture
def handle():
    """Sets the handler of SIGUSR1 until the test is over."""
    previous = signal.getsignal(signal.SIGUSR1)
    yield functools.partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, previous)


def kept(call):
    """The error that was taken for one of ours."""
    try:
        call()
    except raised_by_us(Exception) as error:
        return error


@pytest.mark.parametrize("shape", SHAPES)
def test_a_handlers_exception_is_none_of_ours(shape, handle):
    handle(SHAPES[shape])
    with pytest.raises((Late, KeyError)):
        kept(functools.partial(signal.raise_signal, signal.SIGUSR1))


def test_a_trace_functions_exception_is_none_of_ours():
    def trace(frame, event, argument):
        raise Late("late")

    def traced():
        sys.settrace(trace)
        callee()

    def callee():
        pass

    try:
        with pytest.raises(Late):
            kept(traced)
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("kind", [TimeoutError, Late, ValueError])
def test_what_another_thread_sets_is_none_of_ours(kind):
    """``PyThreadState_SetAsyncExc``, as libraries for timeouts use it."""

    def interrupted():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(get_ident()), ctypes.py_object(kind))
        for _ in range(1000):
            os.getpid()

    with pytest.raises(kind):
        kept(interrupted)


def raising(kind):
    raise kind


def failed_import():
    import tuimon.agent.no_such_module  # noqa: F401


class Awkward:
    """A class of the program whose attributes raise."""

    @property
    def attribute(self):
        raise Late("ours: this code runs because the agent asked")


@pytest.mark.parametrize(
    "call",
    [
        functools.partial(raising, ValueError),
        functools.partial(raising, Late("with arguments")),
        functools.partial(next, iter(())),
        functools.partial(int, "no number"),
        functools.partial(os.stat, "/no/such/file"),
        lambda: Awkward().attribute,
        failed_import,
    ],
)
def test_errors_of_the_agent_and_of_what_it_calls_are_ours(call, handle):
    handle(plain)
    assert kept(call) is not None


def test_only_the_kinds_that_are_asked_for():
    with pytest.raises(ValueError, match="no number"):
        try:
            int("no number")
        except raised_by_us(KeyError, TypeError):
            pass


def clauses():
    """The ``except`` clauses of each ``try`` in the agent that keep an error, but for KEPT: (module, clauses)."""
    for path in sorted(AGENT.rglob("*.py")):
        file = path.relative_to(AGENT).as_posix()
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        for node in ast.walk(tree):
            handlers = [each for each in getattr(node, "handlers", ()) if not (raises_again(each) or is_narrow(each))]
            if handlers:
                around = [each for each in functions if each.lineno <= node.lineno <= each.end_lineno]
                function = max(around, key=lambda each: each.lineno).name if around else ""
                if (file, function) not in KEPT and (file, "") not in KEPT:
                    yield pytest.param(
                        "tuimon.agent." + file.removesuffix(".py").replace("/", "."),
                        handlers,
                        id=f"{file}:{function}:{node.lineno}",
                    )


def is_narrow(handler):
    return isinstance(handler.type, ast.Name) and handler.type.id == "CannotRead"


#: They keep an OSError to themselves, whoever raised it.
KEEP_ERRORS = {"exists", "lexists", "isdir", "isfile", "islink", "ismount", "samefile", "realpath", "makedirs", "walk"}
MAY_KEEP = {
    ("control/stack_sampler.py", "exists"): "in a thread of its own",
    ("private.py", "realpath"): "only without /proc, where there are no rings",
}


def test_nothing_is_called_that_keeps_a_handlers_oserror():
    found = set()
    for path in AGENT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in KEEP_ERRORS:
                found.add((path.relative_to(AGENT).as_posix(), node.attr))
    assert found == set(MAY_KEEP)


def test_a_timeout_in_the_search_for_a_ring_is_not_lost(handle, monkeypatch, tmp_path):
    """Whichever function of the system the signal arrives in."""
    paths = importlib.import_module("tuimon.agent.ring.paths")
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path))
    handle(plain_late)
    for name in ("stat", "lstat", "access", "open", "readlink", "close"):
        real = getattr(os, name)

        def interrupted(*arguments, real=real, **more):
            signal.raise_signal(signal.SIGUSR1)
            return real(*arguments, **more)

        with monkeypatch.context() as patched:
            patched.setattr(os, name, interrupted)
            lost = 0
            arrived.clear()
            try:
                paths.ring_path(os.getpid())
                lost = len(arrived)
            except Late:
                pass
        assert (name, lost) == (name, 0)


arrived = []


def plain_late(signum, frame):
    arrived.append(signum)
    raise Late("late")


def raises_again(handler):
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


@pytest.mark.parametrize(("module", "handlers"), clauses())
def test_every_except_lets_a_handlers_exception_through(module, handlers, handle):
    """Each clause around the arrival of a signal, in place of what its ``try`` does."""
    tree = ast.parse("def receive():\n for _ in range(99):\n  try:\n   raise_signal()\n  except Exception:\n   raise")
    tree.body[0].body[0].body[0].handlers = handlers
    names = {
        **vars(importlib.import_module(module)),
        "raise_signal": functools.partial(signal.raise_signal, signal.SIGUSR1),
    }
    exec(compile(ast.fix_missing_locations(tree), module, "exec"), names)
    for kind in (Late, ValueError, AttributeError, KeyError, TypeError, RuntimeError, ImportError, IndexError):
        handle(functools.partial(plain, kind))
        with pytest.raises(kind, match="late"):
            names["receive"]()


def test_a_callback_gives_the_program_what_a_handler_raised(handle):
    called = []

    def callback(given):
        called.append(given)
        if given is not None:
            signal.raise_signal(signal.SIGUSR1)

    handle(functools.partial(plain, Late))
    call = shielded(callback)
    for given in range(3):
        with pytest.raises(Late, match="late"):
            call(given, None)
            os.getpid()
    assert called == [0, None, 1, None, 2, None]


def test_a_callback_keeps_errors_of_its_own():
    call = shielded({}.__getitem__)
    assert [call("missing", "missing"), call("missing", "missing")] == ["missing", "missing"]


FORKING = """
import os, signal
from tuimon.agent import outside

def handler(signum, frame):
    raise TimeoutError("late")

signal.signal(signal.SIGUSR1, handler)
os.register_at_fork(before=outside.shielded_at_fork(lambda: signal.raise_signal(signal.SIGUSR1)))
parent, arrived = os.getpid(), 0
try:
    os.fork()
    arrived = 0
except TimeoutError:
    arrived = 1
if os.getpid() == parent:
    print([arrived, os.waitstatus_to_exitcode(os.wait()[1])])
else:
    os._exit(arrived)
"""


def test_a_fork_gives_it_to_the_process_that_got_the_signal():
    done = python("-c", FORKING, env=environment(None, path=str(ROOT)))
    assert (done.stdout, done.stderr) == ("[1, 0]\n", "")


KEEPERS = """
import dis, json, os, sys, threading
import torch
from torch.utils.data import DataLoader, TensorDataset
from _tuimon_agent.control import orders
import _tuimon_agent

agent, found, main = _tuimon_agent.__path__[0], set(), threading.get_ident()
CALL_THE_PROGRAM = ("tuimon_", "wrapped")  # the names of hooks around functions of torch's

def has_except(code):
    return any(each.opname == "CHECK_EXC_MATCH" for each in dis.get_instructions(code))

def is_ours(frame):
    return frame.f_code.co_filename.startswith(agent)

def see(frame, event, argument):
    if event == "call" and threading.get_ident() == main and not is_ours(frame) and has_except(frame.f_code):
        caller = frame.f_back
        while caller is not None and not is_ours(caller) and caller.f_code.co_filename != "<string>":
            caller = caller.f_back
        if caller is not None and is_ours(caller) and not caller.f_code.co_name.startswith(CALL_THE_PROGRAM):
            found.add(frame.f_code.co_name + " below " + caller.f_code.co_name)

data, model = TensorDataset(torch.zeros(64, 4)), torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters())

def train(workers):
    for (x,) in DataLoader(data, 2, num_workers=workers):
        model(x).sum().backward()
        optimizer.step()

train(1)  # the first imports what is optional, in torch as well
sys.setprofile(see)
for workers in (0, 0, 0, 1):
    train(workers)
child = os.fork()
train(0)
if child:
    os.waitpid(child, 0)
    for command in orders.KNOWN:
        orders.module_of(command)
sys.setprofile(None)
os.write(1, (json.dumps(sorted(found)) + "\\n").encode())
os._exit(0)
"""
#: Functions in that list that keep no error to themselves.
RAISE_AGAIN = {"join below <listcomp>", "join below _make_ring"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="an instruction for the kind of an except")
def test_no_function_with_an_except_of_its_own_runs_for_the_agent_where_handlers_run(tmp_path):
    """In the training and in a process that it forks; ``os.environ.get`` would be one."""
    done = warm_python("-c", KEEPERS, env=environment(tmp_path / "rings", {"TUIMON_MEMORY": "1"}))
    found = [set(json.loads(line)) - RAISE_AGAIN for line in done.stdout.splitlines()]
    assert (found, done.stderr) == ([set(), set()], "")


def test_what_runs_undisturbed_gives_the_program_what_a_handler_raised(handle):
    handle(functools.partial(plain, Late))
    done = []

    def waits():
        frame = sys._current_frames()[main]
        return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() == "over.acquire()"

    def interrupted():
        until(waits)
        signal.pthread_kill(main, signal.SIGUSR1)
        done.append(True)

    main = get_ident()
    with pytest.raises(Late, match="late"):
        undisturbed(interrupted)
    assert done == [True]
    with pytest.raises(ImportError):
        undisturbed(failed_import)


PROGRAM = """
import json, random, signal, sys
import torch
from torch.utils.data import DataLoader, TensorDataset

def handler(signum, frame):
    global arrived
    arrived = True
    raise TimeoutError("late")

signal.signal(signal.SIGALRM, handler)
printed = []
sys.unraisablehook = printed.append
data, drawn = TensorDataset(torch.zeros(8, 1)), random.Random(1)
list(DataLoader(data))  # the first imports what is optional, and torch keeps any error of that to itself
raised = 0
for _ in range(1000):
    arrived = False
    try:
        signal.setitimer(signal.ITIMER_REAL, drawn.uniform(0.0001, 0.001))
        while not arrived:
            for batch in DataLoader(data, batch_size=4):
                pass
        for _ in range(9):  # the interpreter looks here whether something is pending
            pass
    except TimeoutError:
        raised += 1
print(json.dumps([raised, len(printed)]))
"""


def test_a_timeout_is_not_lost_while_iterators_begin_and_end(tmp_path):
    """A thousand signals at any moment of short epochs reach the program.

    Where callbacks are not shielded, 31 of them do not; where ``os.path.exists`` looks for the ring, one in 25,000.
    """
    raised, printed = printed_json(warm_python("-c", PROGRAM, env=environment(tmp_path / "rings")))
    assert raised == 1000
    assert printed == 0
