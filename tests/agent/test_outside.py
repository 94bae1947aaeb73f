"""What arrives from outside while the agent's code runs reaches the program; an error of the agent does not."""

import ast
import collections
import ctypes
import functools
import gc
import json
import linecache
import operator
import os
import signal
import sys
import threading
from _thread import get_ident

import pytest

from tests.agent.programs import AGENT, ROOT, as_agents, environment, printed_json, python
from tests.waiting import until
from tests.warm_torch import warm_python
from tuimon.agent.outside import attempt, shielded, undisturbed

pytestmark = pytest.mark.trust

#: Functions (or whole files) with an ``except`` that keeps what it catches, and why it may.
KEPT = {
    ("boot.py", "begin"): "raises it afterwards",
    ("boot.py", "_wait"): "raises it afterwards",
    ("boot.py", "_load"): "a thread of its own, in which no handler runs",
    ("boot.py", "_answer"): "in the same thread",
    ("boot.py", "go_on"): "in the same thread",
    ("control/sample.py", "begin"): "an exception of its own",
    ("control/sample.py", "_run"): "a thread of its own",
    ("inject/sitecustomize.py", ""): "runs before the program's first line",
    ("outside.py", "attempt"): "raises it afterwards",
    ("outside.py", "guarded_calls"): "raises it afterwards",
    ("outside.py", "run"): "a thread of its own",
    ("outside.py", "undisturbed"): "raises it afterwards",
    ("private.py", "make_private"): "FileExistsError of a folder that another process makes",
    ("ranges.py", "tuimon_phase"): "goes on into the program's generator",
    ("ring/loading_slots.py", "_lock"): "BlockingIOError of a lock",
    ("ring/files.py", "reason_left_by"): "is the monitor's",
    ("ring/reader.py", ""): "is the monitor's",
    ("ring/writer.py", "write_all"): "IndexError of an empty queue; and around assignments, at which nothing arrives",
    ("torch_compat/rebinding.py", "undo_all"): "a thread of its own",
}


class Late(TimeoutError):
    """What the handlers raise."""


class Worded(Exception):
    """A class that sets its message."""

    def __init__(self):
        super().__init__("late")


def plain(kind, signum, frame):
    raise kind("late")


HANDLERS = {
    "function": functools.partial(plain, Late),
    "of an error of ours": functools.partial(plain, FileNotFoundError),
    "lambda": lambda signum, frame: {}.popitem(),
    "in C, IndexError": functools.partial(operator.setitem, []),
    "in C, KeyError": collections.OrderedDict().move_to_end,
    "in C, TypeError": max,
}


@pytest.fixture
def handle():
    """Sets the handler of SIGUSR1 until the test is over."""
    previous = signal.getsignal(signal.SIGUSR1)
    yield functools.partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, previous)


def once(arrive):
    """A function of the agent's in which something arrives the first time that it is called."""
    calls = []

    def interrupted():
        calls.append(True)
        if len(calls) == 1:
            arrive()
        for _ in range(1000):
            os.getpid()

    return as_agents(interrupted)


RING = functools.partial(signal.raise_signal, signal.SIGUSR1)


@pytest.mark.parametrize("arrive", [RING, lambda: (RING(), os.getpid())], ids=["ours", "below"])
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handlers_exception_goes_on(handler, arrive, handle):
    handle(HANDLERS[handler])
    with pytest.raises((Late, FileNotFoundError, LookupError, TypeError)):
        attempt(once(arrive))


def test_a_trace_functions_exception_goes_on():
    def trace(frame, event, argument):
        raise Late("late")

    def callee():
        pass

    def traced():
        sys.settrace(trace)
        callee()

    try:
        with pytest.raises(Late):
            attempt(once(traced))
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("kind", [TimeoutError, Late, ValueError, Worded, KeyboardInterrupt])
def test_what_another_thread_sets_goes_on(kind):
    """``PyThreadState_SetAsyncExc``, as libraries for timeouts use it."""
    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    with pytest.raises(kind):
        attempt(once(lambda: set_exception(ctypes.c_ulong(get_ident()), ctypes.py_object(kind))))


def test_what_a_pending_call_raises_goes_on():
    api = ctypes.pythonapi
    fails = type("Fails", (), {"__bool__": staticmethod(functools.partial(operator.setitem, [], 0, 0))})()
    is_true = ctypes.cast(api.PyObject_IsTrue, ctypes.c_void_p)
    with pytest.raises(IndexError):
        attempt(once(lambda: api.Py_AddPendingCall(is_true, ctypes.py_object(fails))))


def raising(kind):
    raise kind


def failed_import():
    import tuimon.agent.no_such_module  # noqa: F401


def test_what_arrives_when_an_error_comes_again_goes_on():
    calls = []

    def fails():
        calls.append(True)
        if len(calls) == 2:
            raise Late("late")
        raise ValueError("ours")

    with pytest.raises(Late):
        attempt(fails)


class Awkward:
    """A class of the program whose attributes raise."""

    @property
    def attribute(self):
        raise Late("ours: this code runs because the agent asked")


def deep():
    return deep()


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
        deep,
    ],
)
def test_errors_that_come_again_are_kept(call):
    assert attempt(call) is None


def missing():
    return {}["missing"]


def absent():
    return None.attribute


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before, handlers may run after any instruction")
@pytest.mark.parametrize("call", [missing, absent, lambda: [][0:1][0]])
def test_an_error_of_the_agents_own_code_is_kept_though_it_comes_once(call):
    """After a change that was half made it may not come again."""
    assert attempt(once(as_agents(call))) is None


def test_an_error_that_is_kept_holds_nothing():
    """What its frames hold ends when it would without us: no collection is needed."""
    ended = []

    class Held:
        def __del__(self):
            ended.append(True)

    def fails():
        held = Held()
        int("no number", 10 if held else 2)

    gc.disable()
    try:
        attempt(fails)
        assert ended == [True, True]
    finally:
        gc.enable()


def test_an_error_of_the_system_is_kept_though_it_comes_once(tmp_path):
    """A process that has ended, a file that another one has removed."""
    assert attempt(once(as_agents(lambda: os.stat(tmp_path / "missing")))) is None


def kept_clauses():
    """The functions of the agent with an ``except`` that keeps what it catches."""
    for path in sorted(AGENT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and not any(isinstance(each, ast.Raise) for each in ast.walk(node)):
                around = [each for each in functions if each.lineno <= node.lineno <= each.end_lineno]
                function = max(around, key=lambda each: each.lineno).name if around else ""
                yield path.relative_to(AGENT).as_posix(), function


def test_nothing_is_caught_but_by_the_guards():
    found = set(kept_clauses())
    assert {each for each in found if each not in KEPT and (each[0], "") not in KEPT} == set()
    assert {each for each in KEPT if each[1] and each not in found} == set()


#: They keep an OSError to themselves, whoever raised it.
KEEP_ERRORS = {"exists", "lexists", "isdir", "isfile", "islink", "ismount", "samefile", "realpath", "makedirs", "walk"}
MAY_KEEP = {
    ("control/sample.py", "exists"): "in a thread of its own",
}


#: System calls for which there are sandboxes that kill a process.
RARE = {"flock", "posix_fallocate"}


def test_nothing_is_called_that_keeps_a_handlers_oserror_or_that_sandboxes_kill_for():
    found = set()
    for path in AGENT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in KEEP_ERRORS | RARE:
                found.add((path.relative_to(AGENT).as_posix(), node.attr))
    assert found == set(MAY_KEEP)


def test_a_callback_gives_the_program_what_a_handler_raised(handle):
    called = []

    def callback(given):
        if given is not None and given not in called:
            called.append(given)
            signal.raise_signal(signal.SIGUSR1)

    handle(functools.partial(plain, Late))
    call = shielded(callback)
    for given in range(3):
        with pytest.raises(Late, match="late"):
            call(given, None)
            os.getpid()
    assert called == [0, 1, 2]


def test_a_callback_gives_a_thread_what_was_set_in_it():
    """And not the main thread, in which pending calls run."""
    set_exception, called, caught = ctypes.pythonapi.PyThreadState_SetAsyncExc, [], []

    def callback(given):
        if given and not called:
            called.append(given)
            set_exception(ctypes.c_ulong(get_ident()), ctypes.py_object(Worded))
            for _ in range(9):
                os.getpid()

    def worker():
        try:
            call(True, False)
            for _ in range(9):
                os.getpid()
        except Worded as error:
            caught.append(error.args)

    call = shielded(callback)
    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    assert caught == [("late",)]


def test_a_callback_keeps_errors_of_its_own():
    call = shielded({}.__getitem__)
    assert [call("missing", "missing"), call("missing", "missing")] == ["missing", "missing"]


FORKING = """
import os, signal
from tuimon.agent import outside

def handler(signum, frame):
    raise TimeoutError("late")

signal.signal(signal.SIGUSR1, handler)
once = [signal.SIGUSR1]
os.register_at_fork(before=outside.shielded_at_fork(lambda: signal.raise_signal(once.pop()) if once else None))
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

def has_except(code):
    return any(each.opname == "CHECK_EXC_MATCH" for each in dis.get_instructions(code))

def is_ours(frame):
    return frame.f_code.co_filename.startswith(agent)

def see(frame, event, argument):
    if event == "call" and threading.get_ident() == main and not is_ours(frame) and has_except(frame.f_code):
        caller = frame.f_back
        while caller is not None and not is_ours(caller) and caller.f_code.co_filename != "<string>":
            caller = caller.f_back
        if caller is not None and is_ours(caller) and not caller.f_code.co_name.startswith("tuimon_"):
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
        orders.begin_of(command)
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


@pytest.mark.parametrize("how", ["plain", "c", "thread"])
def test_nothing_that_arrives_in_a_training_is_lost(tmp_path, how):
    """Handlers of all kinds, and other threads: what they raise is raised once, where it should be."""
    program = os.path.join(os.path.dirname(__file__), "arrivals.py")
    done = warm_python(program, how, "150", env=environment(tmp_path / "rings"))
    assert printed_json(done) == [150, 0]
