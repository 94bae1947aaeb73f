"""Tells errors of the agent from exceptions that arrive while its code runs, which are the program's.

A signal handler may raise between any two bytecodes, so also inside a ``try`` of ours. What it raises must reach the
program, as it would without us. Hence every ``except`` of the agent that keeps an error to itself reads::

    try:
        ...
    except raised_by_us(OSError):
        return

Where Python only prints what a function raises, it is ``shielded``. Functions that are written in Python may keep an
error themselves, a handler's as well: those of ``os.path`` that read the file system any OSError (``os.access`` and
``os.stat`` do not), ``os.environ`` any KeyError (``variables``), imports many (once the program runs, they are
``undisturbed``).
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs milliseconds, in every Python process under ``tuimon run``
    from types import CodeType, FrameType, TracebackType
    from typing import Any, Callable, Generator, List, Optional, Tuple, Type, TypeVar

    Error = TypeVar("Error", bound=BaseException)

_CO_VARARGS = 0x04  # as in ``inspect``, which takes milliseconds to import
#: The exceptions that functions written in C raise without arguments.
_RAISED_BARE = (StopIteration, StopAsyncIteration, MemoryError, NotImplementedError)


def raised_by_us(*kinds: "Type[Error]") -> "Tuple[Type[Error], ...]":
    """The exceptions for an ``except`` to catch: ``kinds``, but none where the one under way came from outside.

    Python evaluates this only once an exception has been raised; what is not caught goes on as it was. An exception
    came from outside if it passed through a signal handler or a trace function, or if another thread set it
    (``PyThreadState_SetAsyncExc``).
    """
    error = sys.exc_info()[1]
    return () if error is not None and _is_from_outside(error) else kinds


def _is_from_outside(error: BaseException) -> bool:
    traceback = error.__traceback__
    if traceback is None:
        return False
    handlers: "Optional[List[CodeType]]" = None
    while traceback.tb_next is not None:
        interrupted, traceback = traceback.tb_frame, traceback.tb_next
        frame = traceback.tb_frame
        if frame.f_code.co_filename.startswith(_FOLDER):
            continue
        if handlers is None:
            handlers = _handler_codes()
        if frame.f_code in handlers or _has_argument(frame, interrupted):
            return True
    return _was_set(error, traceback)


def _has_argument(frame: "FrameType", interrupted: "FrameType") -> bool:
    """True if a call got the frame that it was called from, as handlers and trace functions do from Python itself."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _CO_VARARGS)
    variables = frame.f_locals
    for name in code.co_varnames[:count]:
        value = variables.get(name)
        if value is interrupted or (type(value) is tuple and any(each is interrupted for each in value)):
            return True
    return False


def _handler_codes() -> "List[CodeType]":
    """The code of the signal handlers that are in place: some delete their arguments first."""
    from _signal import NSIG, getsignal  # type: ignore[import-not-found]  # typeshed has only ``signal``, which is slow

    codes = [_code_of(getsignal(number)) for number in range(1, NSIG)]
    return [code for code in codes if code is not None]


def _code_of(handler: "Any") -> "Optional[CodeType]":
    from functools import partial
    from types import FunctionType, MethodType

    while type(handler) is partial:
        handler = handler.func
    if not callable(handler):  # SIG_DFL, SIG_IGN, None
        return None
    if type(handler) is MethodType:
        handler = handler.__func__
    return getattr(handler if type(handler) is FunctionType else type(handler).__call__, "__code__", None)


def _was_set(error: BaseException, innermost: "TracebackType") -> bool:
    """True if another thread set it: Python makes such an exception of its class alone, at no ``raise``."""
    if error.args or isinstance(error, _RAISED_BARE):
        return False
    from opcode import opname

    instruction = opname[innermost.tb_frame.f_code.co_code[innermost.tb_lasti]]
    return instruction not in ("RAISE_VARARGS", "RERAISE")


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

    Errors of ours end there; an exception from outside is raised afterwards, in what the program does then. A callback
    that is a function could be interrupted before its ``try`` begins: this is C around a generator, which is inside
    one when it goes on. ``max`` calls it with each argument, and then compares what it gave.
    """
    from functools import partial

    calls = guarded_calls(function, _scheduler())
    next(calls)
    return partial(max, key=calls.send)


def shielded_at_fork(function: "Callable[[], object]") -> "Callable[[], object]":
    """The same for ``os.register_at_fork``."""
    from functools import partial

    return partial(shielded(lambda is_first: function() if is_first else None), True, False)


def guarded_calls(function: "Callable[[Any], object]", scheduler: "Any") -> "Generator[Any, Any, None]":
    """Call the function with what is sent. It goes on whatever is raised, until it is closed."""
    raised: "List[BaseException]" = []
    while True:
        try:
            while True:
                try:
                    while raised:
                        error = raised.pop()
                        if not isinstance(error, Exception) or _is_from_outside(error):
                            _late.append((error, os.getpid()))
                        del error
                    while True:
                        function((yield scheduler if _late else 0))
                except GeneratorExit:  # not kept: it has a frame with those of its callers, and what those hold
                    return
                except BaseException as error:
                    raised.append(error)
        except BaseException as error:  # another one, as the first was being noted
            raised.append(error)


#: The exceptions still to be raised, and the process of each: a child that was forked meanwhile got no signal.
_late: "List[Tuple[BaseException, int]]" = []
_schedulers: "List[Any]" = []


class _Raiser:
    """Raises what is late when its truth is taken, but not inside a callback."""

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
    """An object that has a pending call take the truth of a ``_Raiser`` when it is compared.

    All in C: a call of ours would be interrupted by that pending call at once, and not what the program does then.
    """
    if not _schedulers:
        import ctypes  # torch has imported it
        from functools import partial

        api, raiser = ctypes.pythonapi, ctypes.py_object(_Raiser())
        api.Py_IncRef(raiser)  # a pending call has but its address
        is_true = ctypes.cast(api.PyObject_IsTrue, ctypes.c_void_p)
        schedule = staticmethod(partial(api.Py_AddPendingCall, is_true, raiser))
        # what it is compared with is passed as well, as one more argument than the function takes
        compared = {"__gt__": schedule, "__lt__": schedule, "_as_parameter_": 0}
        _schedulers.append(type("_Scheduler", (), compared)())
    return _schedulers[0]


#: The agent's folder, as its code objects name it.
_FOLDER = raised_by_us.__code__.co_filename.rpartition("outside.py")[0]
