"""NVTX ranges as markers: ``torch.cuda.nvtx`` and the ``nvtx`` package.

What the user's calls do, return and raise stays theirs; the marker comes after.
"""

import sys
from functools import partial, wraps
from types import FrameType
from typing import Any, Callable, Dict, List, Optional

from .. import runtime
from ..torch_compat import dynamo
from . import ranges

_undo: List[Callable[[], object]] = []
#: Files whose frames stand between a range and the user's line that opened it.
_passed_through = {__file__}
#: Ranges that were started and have not ended: their handle -> our handles, oldest first. Without a profiler attached
#: NVTX gives every range the handle 0, hence a list.
_started: Dict[object, List[int]] = {}
_STARTED_LIMIT = 1024


def uninstall() -> None:
    """Undo every hook."""
    while _undo:
        try:
            _undo.pop()()
        except Exception:
            continue
    _started.clear()


def hook_torch(module: Any) -> None:
    """Put a stand-in before the C functions that ``torch.cuda.nvtx`` calls.

    The module's own functions stay as they are, so it does not matter who imported them by name, and when.
    """
    native = module._nvtx
    _pass_through(module.__file__)
    stand_in = _NativeNvtx(native)
    module._nvtx = stand_in
    _undo.append(partial(_rebind_if, module, "_nvtx", stand_in, native))


class _NativeNvtx:
    """Has the functions of ``torch._C._nvtx``; each leaves a marker once the real one has returned."""

    def __init__(self, native: Any) -> None:
        self._native = native
        for name, make in _NATIVE.items():
            function = getattr(native, name, None)
            if function is not None:
                setattr(self, name, make(function))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_native"], name)


def _opening(emit: Callable[[object, FrameType], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that opens a range, or marks: its first argument is the name."""

    @wraps(function)
    def tuimon_nvtx(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if runtime.on and not runtime.is_compiling():
            emit(args[0] if args else kwargs.get("message", kwargs.get("msg", "")), _user_frame())
        return result

    return _hidden(tuimon_nvtx)


def _popping(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def tuimon_nvtx(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if runtime.on and not runtime.is_compiling():
            ranges.pop(_user_frame())
        return result

    return _hidden(tuimon_nvtx)


def _starting(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def tuimon_nvtx(*args: Any, **kwargs: Any) -> Any:
        handle = function(*args, **kwargs)
        if handle is not None and runtime.on and not runtime.is_compiling():
            _remember(handle, args[0] if args else kwargs.get("message", kwargs.get("msg", "")))
        return handle

    return _hidden(tuimon_nvtx)


def _ending(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def tuimon_nvtx(handle: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(handle, *args, **kwargs)
        if handle is not None and runtime.on and not runtime.is_compiling():
            _forget(handle)
        return result

    return _hidden(tuimon_nvtx)


_NATIVE: Dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "rangePushA": partial(_opening, ranges.push),
    "rangePop": _popping,
    "rangeStartA": _starting,
    "rangeEnd": _ending,
    "markA": partial(_opening, ranges.mark),
}
_PACKAGE: Dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "push_range": partial(_opening, ranges.push),
    "pop_range": _popping,
    "start_range": _starting,
    "end_range": _ending,
    "mark": partial(_opening, ranges.mark),
}


def hook_package(package: Any) -> None:
    """Wrap the public functions of the ``nvtx`` package and ``nvtx.annotate``. ``Domain`` is native: not seen."""
    _pass_through(package.__file__)
    inner = sys.modules.get(package.__name__ + ".nvtx")
    for name, make in _PACKAGE.items():
        function = getattr(package, name, None)
        if function is not None:
            replacement = make(function)
            for owner in (package, inner):
                if owner is not None and owner.__dict__.get(name) is function:
                    _replace(owner, name, replacement)
    annotate = getattr(package, "annotate", None)
    if isinstance(annotate, type) and "__reduce__" in annotate.__dict__:  # disabled by NVTX_DISABLE: knows no name
        _pass_through(sys.modules[annotate.__module__].__file__)
        _hook_annotate(annotate)


def _hook_annotate(annotate: Any) -> None:
    enter, leave, call = annotate.__enter__, annotate.__exit__, annotate.__call__

    @wraps(enter)
    def tuimon_enter(self: Any) -> Any:
        result = enter(self)
        if runtime.on and not runtime.is_compiling():
            ranges.push(_message(self) or "", _user_frame())
        return result

    @wraps(leave)
    def tuimon_exit(self: Any, *error: Any) -> Any:
        result = leave(self, *error)
        if runtime.on and not runtime.is_compiling():
            ranges.pop()
        return result

    @wraps(call)
    def tuimon_call(self: Any, function: Any) -> Any:
        from . import decorated

        name = _message(self) or str(getattr(function, "__name__", ""))
        return call(self, decorated.decorate(function, name))

    for name, replacement in (("__enter__", tuimon_enter), ("__exit__", tuimon_exit), ("__call__", tuimon_call)):
        _replace(annotate, name, replacement)


def _message(annotation: Any) -> Optional[str]:
    arguments = getattr(annotation, "init_args", None)
    return arguments[0] if isinstance(arguments, tuple) and arguments else None


def _user_frame() -> FrameType:
    """The innermost frame outside NVTX's own files."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename in _passed_through and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _pass_through(file: Optional[str]) -> None:
    import contextlib

    _passed_through.update(path for path in (file, contextlib.__file__) if path)


def _remember(handle: Any, name: object) -> None:
    try:
        if len(_started) < _STARTED_LIMIT:
            ours = ranges.start(ranges.number(name, _user_frame()))
            _started.setdefault(handle, []).append(ours)
    except Exception:
        return


def _forget(handle: Any) -> None:
    try:
        ours = _started.get(handle)
        if ours:
            ranges.end(ours.pop(), _user_frame())
            if not ours:
                _started.pop(handle, None)
    except Exception:
        return


def _hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    dynamo.skip(function)
    return function


def _replace(owner: Any, name: str, replacement: Any) -> None:
    original = owner.__dict__[name]
    setattr(owner, name, replacement)
    _undo.append(partial(_rebind_if, owner, name, replacement, original))


def _rebind_if(owner: Any, name: str, replacement: Any, original: Any) -> None:
    if owner.__dict__.get(name) is replacement:
        setattr(owner, name, original)
