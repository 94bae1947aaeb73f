"""Keeps errors of the agent to itself, and passes exceptions that arrive from outside while its code runs to the
program.

A signal handler may raise between any two bytecodes, so also inside a ``try`` of ours; so may another thread
(``PyThreadState_SetAsyncExc``) and a trace function. The program must get such exceptions, as without us. Hence:

- hooks that run in every step catch nothing: by construction nothing in them fails;
- code that can fail is called by ``attempt``, and can be called twice without harm;
- if it cannot be called twice, such as to carry out an order, ``is_programs`` decides by the traceback;
- if Python would only print what a function raises, the function is ``shielded``.

Functions written in Python may swallow an error, a handler's as well: those of ``os.path`` that read the file system
swallow any OSError (``os.access`` and ``os.stat`` do not), ``os.environ`` any KeyError (hence ``variable``), imports
many (hence, once the program runs, ``undisturbed``).
"""

import os
import sys
from _thread import get_ident, get_native_id

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs milliseconds, in every Python process under ``tuimon run``
    from types import FrameType, TracebackType
    from typing import Any, Callable, Generator, List, Optional, Tuple

#: Parts of the names of instructions after which the interpreter checks for signals and other threads' exceptions, from
#: 3.11 on; before, it may after any. A comparison of 3.11 includes the jump after it; arithmetic and the
#: formatting of numbers check as well.
_POLLING = ("CALL", "RESUME", "JUMP_BACKWARD", "COMPARE_OP", "BINARY_OP", "FORMAT")
#: How often a failed call is repeated: two of three failures at one place are our own, a single one is from outside.
_MORE_CALLS = 2
#: A bare ``raise`` takes the traceback from the exception object since 3.11: only there can our frame be taken out.
HIDES_FRAMES = sys.version_info >= (3, 11)


def attempt(function: "Callable[..., Any]", *arguments: "Any") -> "Any":
    """The result of one of our functions; None if it fails by itself.

    A failure of its own happens again, at the same place, when the function is called again. An exception from outside
    does not, and is raised::

        attempt(os.unlink, path)    no such file: FileNotFoundError, which only the system raises -> None
        attempt(read_facts)         TypeError in a torch function, and again -> None
        attempt(read_facts)         TypeError of a signal handler, and then none -> TypeError
    """
    try:
        return function(*arguments)
    except Exception as error:
        raised = [] if is_surely_ours(error) else [error]
    try:
        for _ in range(_MORE_CALLS if raised else 0):
            try:
                function(*arguments)
            except Exception as error:
                if is_surely_ours(error):
                    break
                places = [_place(each) for each in raised]
                if _place(error) in places:
                    del raised[places.index(_place(error))]
                    break
                raised.append(error)
            else:
                break
        if raised:
            raise raised[0]
        return None
    finally:
        raised.clear()  # the exceptions hold this frame


def is_surely_ours(error: BaseException) -> bool:
    """True if our own code raised it, and no exception from outside could look the same.

    It is an error of the operating system, of memory or of recursion depth, or it was raised at an instruction at which
    no exception from outside can arrive.
    """
    traceback = _innermost(error)
    if traceback is None or not traceback.tb_frame.f_code.co_filename.startswith(_FOLDER):
        return False
    if isinstance(error, OSError):
        return error.errno is not None and not isinstance(error, TimeoutError)
    return isinstance(error, (MemoryError, RecursionError)) or not _is_polling(traceback)


def is_programs(error: BaseException) -> bool:
    """True if the program raised it: a frame that is neither the agent's, nor torch's or the standard library's."""
    traceback = _innermost(error)
    if not isinstance(error, Exception) or traceback is None:
        return True
    file = traceback.tb_frame.f_code.co_filename
    torch = getattr(sys.modules.get("torch"), "__file__", None) or "?"
    if file.startswith((_FOLDER, torch.rpartition("__init__")[0] or "?", "<frozen ")):
        return False
    return "-packages" in file or not file.startswith(os.__file__.rpartition("os.py")[0] or "?")


def _innermost(error: BaseException) -> "Optional[TracebackType]":
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


def _is_polling(traceback: "TracebackType") -> bool:
    if sys.version_info < (3, 11):
        return True
    from opcode import opname

    instruction = opname[traceback.tb_frame.f_code.co_code[traceback.tb_lasti]]
    return any(word in instruction for word in _POLLING)


def _place(error: BaseException) -> "List[Any]":
    """The identity of an exception: its type, and where it came from below ``attempt``."""
    place: "List[Any]" = [type(error)]
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
        place.append((traceback.tb_frame.f_code, traceback.tb_lasti))
    return place


def hide_frame(error: BaseException) -> None:
    """Remove the caller's frame, the first, from the traceback: the user sees what plain torch shows."""
    traceback = error.__traceback__
    if HIDES_FRAMES and traceback is not None:
        error.__traceback__ = traceback.tb_next


def variable(name: "str") -> "Optional[str]":
    """The value of an environment variable, read in C; None if it is not set."""
    encoded: "Any" = getattr(os.environ, "_data", None)
    if type(encoded) is not dict:  # the program has put something else in the place of ``os.environ``
        return os.environ.get(name)
    value = encoded.get(os.fsencode(name))
    return None if value is None else os.fsdecode(value)


def undisturbed(function: "Callable[[], object]") -> None:
    """Call a function in a thread, where no handler runs, and wait for it.

    Raises afterwards what a handler has raised in the caller meanwhile, else what the function raised.
    """
    from _thread import allocate_lock, start_new_thread

    over, is_over = allocate_lock(), []
    raised: "List[BaseException]" = []
    errors: "List[BaseException]" = []
    over.acquire()

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)
        finally:
            is_over.append(True)
            over.release()

    start_new_thread(run, ())
    while not is_over:
        try:
            over.acquire()
        except BaseException as error:
            raised.append(error)
    if raised or errors:
        raise (raised or errors)[0]


def shielded(function: "Callable[[Any], object]") -> "Callable[[Any, Any], object]":
    """A callback that calls the function with each of its two arguments, for where Python only prints what is raised.

    Errors of ours end there; an exception from outside is raised afterwards, in the code that the program runs next in
    the same thread. A callback written as a function could be interrupted before its ``try`` begins: this one is C
    around a generator, which resumes inside a ``try``. ``max`` calls it with each argument, and compares the results.
    """
    from functools import partial

    calls = guarded_calls(function, _scheduler())
    next(calls)
    return partial(max, key=calls.send)


def shielded_at_fork(function: "Callable[[], object]") -> "Callable[[], object]":
    """As ``shielded``, for ``os.register_at_fork``."""
    from functools import partial

    return partial(shielded(lambda is_first: function() if is_first else None), True, False)


def guarded_calls(function: "Callable[[Any], object]", scheduler: "Any") -> "Generator[Any, Any, None]":
    """Call the function with each value sent. The generator goes on whatever is raised, until it is closed."""
    raised: "List[BaseException]" = []
    here: "List[Any]" = []
    while True:
        try:
            while True:
                try:
                    while raised:
                        error = raised.pop()
                        if get_native_id() == os.getpid():
                            _late.append((error, os.getpid()))
                        else:  # handlers run in the main thread alone: another thread has set it
                            here.append(_setter(type(error)))
                        del error
                    while True:
                        attempt(function, (yield here.pop() if here else scheduler if _late else 0))
                except GeneratorExit:  # not kept: it would keep its callers' frames, and all they hold
                    return
                except BaseException as error:
                    raised.append(error)
        except BaseException as error:  # another one, as the first was being noted
            raised.append(error)


#: The exceptions still to be raised, and the process of each: a child that was forked meanwhile got no signal.
_late: "List[Tuple[BaseException, int]]" = []
_schedulers: "List[Any]" = []


class _LateRaiser:
    """Raises the late exceptions when its truth value is taken, but not inside a callback."""

    def __bool__(self) -> bool:
        frame: "Optional[FrameType]" = sys._getframe()
        while frame is not None:
            if frame.f_code is guarded_calls.__code__:
                return False
            frame = frame.f_back
        while _late:
            error, pid = _late.pop(0)
            if pid == os.getpid():
                raise error
        return False


def _scheduler() -> "Any":
    """An object that, when compared, has a pending call of the main thread ask if a ``_LateRaiser`` is true."""
    if not _schedulers:
        import ctypes  # torch has imported it

        api, raiser = ctypes.pythonapi, ctypes.py_object(_LateRaiser())
        api.Py_IncRef(raiser)  # a pending call holds only its address
        is_true = ctypes.cast(api.PyObject_IsTrue, ctypes.c_void_p)
        _schedulers.append(_call_on_comparison(api.Py_AddPendingCall, is_true, raiser))
    return _schedulers[0]


def _setter(kind: "type") -> "Any":
    """An object that sets an exception of this class in this thread again when it is compared."""
    import ctypes

    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    return _call_on_comparison(set_exception, ctypes.c_ulong(get_ident()), ctypes.py_object(kind))


def _call_on_comparison(function: "Any", *arguments: "Any") -> "Any":
    """An object that has a function of Python's C API called when it is compared.

    All in C: the exception that it sets would interrupt a Python function of ours immediately, and not the program's
    next code. The other operand of the comparison is passed as well, as one more argument than the function takes.
    """
    from functools import partial

    call = staticmethod(partial(function, *arguments))
    return type("_Compared", (), {"__gt__": call, "__lt__": call, "_as_parameter_": 0})()


#: The agent's folder, as its code objects name it.
_FOLDER = attempt.__code__.co_filename.rpartition("outside.py")[0]
