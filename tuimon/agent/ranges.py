"""The markers of user ranges, whether from ``tuimon.phase`` or NVTX. Nothing here raises into user code."""

import sys
from _thread import get_ident
from functools import partial, wraps
from types import CodeType, FrameType
from typing import Any, Callable, Generator, Optional, Tuple

from . import runtime
from .pace import pace
from .ring import layout
from .torch_compat import dynamo, rebinding

#: The most samples or tokens of a step: more is an error in the program.
_LARGEST = 1 << 40


def push(name: object, frame: FrameType) -> None:
    """Begin a range on this thread, nested in those that are open."""
    runtime.emit(layout.RANGE_PUSH, name_id(name, frame))


def push_function(name: object, code: Optional[CodeType]) -> None:
    """Begin a range that is a whole function."""
    writer = runtime.opened_writer()
    runtime.emit(layout.RANGE_PUSH, writer.function_id(name, code) if writer is not None else 0)


def pop(frame: Optional[FrameType] = None) -> None:
    """End the innermost range of this thread; ``frame``: of the call that ends it, None at the end of a block."""
    runtime.emit(layout.RANGE_POP, name_id("", frame) if frame is not None else 0)


def step(samples: Optional[int] = None, tokens: Optional[int] = None) -> None:
    """End a training step; ``samples`` and ``tokens``: how many it held."""
    for flag, count in ((layout.STEP_SAMPLES, samples), (layout.STEP_TOKENS, tokens)):
        if type(count) is int and 0 <= count < _LARGEST:
            runtime.emit(layout.STEP_SIZE, count, flag)
    if pace.thread == get_ident():
        pace.mark()
    else:
        runtime.emit(layout.STEP)
    if runtime.facts_due:
        runtime.publish_facts()


def mark(name: object, frame: FrameType) -> None:
    runtime.emit(layout.MARK, name_id(name, frame))


def name_id(name: object, frame: FrameType) -> int:
    """Id of a name at the current place of ``frame``; 0 without a ring or room for the name."""
    writer = runtime.opened_writer()
    return writer.place_id(name, frame) if writer is not None else 0


_GENERATOR = 0x20  # flags of code objects, as in ``inspect``, which takes milliseconds to import
_COROUTINE = 0x80


def decorate(function: Callable[..., Any], name: str) -> Any:
    """The function, with its runs marked as ranges."""
    code = getattr(function, "__code__", None)
    flags = code.co_flags if code is not None else 0
    if flags & _COROUTINE:  # ranges nest, and a thread's coroutines overlap: it has none
        return function
    wrapper = (_generator if flags & _GENERATOR else _function)(function, name, code)
    dynamo.skip(wrapper)
    return wrapper


def _function(function: Callable[..., Any], name: str, code: Optional[CodeType]) -> Any:
    @wraps(function)
    def tuimon_phase(*args: Any, **kwargs: Any) -> Any:
        if not runtime.on or runtime.is_compiling():
            return function(*args, **kwargs)
        push_function(name, code)
        try:
            return function(*args, **kwargs)
        finally:
            pop()

    return tuimon_phase


def _generator(function: Callable[..., Any], name: str, code: Optional[CodeType]) -> Any:
    """A range for each stretch of time inside the generator, not for time in its consumer."""

    @wraps(function)
    def tuimon_phase(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        resume, value = generator.send, None
        while True:
            pushed = runtime.on and not runtime.is_compiling()
            if pushed:
                push_function(name, code)
            try:
                item = resume(value)
            except StopIteration as stop:
                return stop.value
            finally:
                if pushed:
                    pop()
            try:
                value = yield item
                resume = generator.send
            except GeneratorExit:
                generator.close()
                raise
            except BaseException as error:
                resume, value = generator.throw, error

    return tuimon_phase


#: Files whose frames lie between a hooked function and the user's line that called it.
_nvtx_files = {__file__}


def hook_nvtx(module: Any) -> None:
    """Replace the C functions that ``torch.cuda.nvtx`` calls.

    The module's own functions stay as they are: programs may have imported them by name.
    """
    native = module._nvtx
    _add_files(module.__file__)
    rebinding.rebind(module, "_nvtx", _NativeNvtx(native))


class _NativeNvtx:
    """The functions of ``torch._C._nvtx``, each emitting a marker once the real one has returned."""

    def __init__(self, native: Any) -> None:
        self._native = native
        for name, wrap in _NATIVE.items():
            function = getattr(native, name, None)
            if function is not None:
                setattr(self, name, wrap(function))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_native"], name)


def _followed(after: Callable[[Any], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function; ``after`` receives its first argument, a name."""

    @wraps(function)
    def tuimon_nvtx(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if runtime.on and not runtime.is_compiling():
            after(args[0] if args else kwargs.get("message", kwargs.get("msg", "")))
        return result

    dynamo.skip(tuimon_nvtx)
    return tuimon_nvtx


_WRAPPERS: Tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    partial(_followed, lambda name: push(name, _user_frame())),
    partial(_followed, lambda _: pop(_user_frame())),
    partial(_followed, lambda name: mark(name, _user_frame())),
)
_NATIVE = dict(zip(("rangePushA", "rangePop", "markA"), _WRAPPERS))
_PACKAGE = dict(zip(("push_range", "pop_range", "mark"), _WRAPPERS))


def hook_nvtx_package(package: Any) -> None:
    """Wrap the public functions of the ``nvtx`` package and ``nvtx.annotate``, but not ``Domain``, which is native."""
    _add_files(package.__file__)
    inner = sys.modules.get(package.__name__ + ".nvtx")
    for name, wrap in _PACKAGE.items():
        function = getattr(package, name, None)
        if function is not None:
            replacement = wrap(function)
            for owner in (package, inner):
                if owner is not None and owner.__dict__.get(name) is function:
                    rebinding.rebind(owner, name, replacement)
    annotate = getattr(package, "annotate", None)
    # without a name it is disabled, by NVTX_DISABLE
    if isinstance(annotate, type) and "__reduce__" in annotate.__dict__:
        _add_files(sys.modules[annotate.__module__].__file__)
        _hook_annotate(annotate)


def _hook_annotate(annotate: Any) -> None:
    enter, leave, call = annotate.__enter__, annotate.__exit__, annotate.__call__

    @wraps(enter)
    def tuimon_enter(self: Any) -> Any:
        result = enter(self)
        if runtime.on and not runtime.is_compiling():
            push(_message(self) or "", _user_frame())
        return result

    @wraps(leave)
    def tuimon_exit(self: Any, *error: Any) -> Any:
        result = leave(self, *error)
        if runtime.on and not runtime.is_compiling():
            pop()
        return result

    @wraps(call)
    def tuimon_call(self: Any, function: Any) -> Any:

        name = _message(self) or str(getattr(function, "__name__", ""))
        return call(self, decorate(function, name))

    for name, replacement in (("__enter__", tuimon_enter), ("__exit__", tuimon_exit), ("__call__", tuimon_call)):
        rebinding.rebind(annotate, name, replacement)


def _message(annotation: Any) -> Optional[str]:
    arguments = getattr(annotation, "init_args", None)
    return arguments[0] if isinstance(arguments, tuple) and arguments else None


def _user_frame() -> FrameType:
    """The innermost frame outside NVTX's own files."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename in _nvtx_files and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _add_files(file: Optional[str]) -> None:
    import contextlib

    _nvtx_files.update(path for path in (file, contextlib.__file__) if path)
