"""NVTX ranges as markers: ``torch.cuda.nvtx`` and the ``nvtx`` package.

What the user's calls do, return and raise is unchanged; the marker follows. Ranges that are told by a handle
(``range_start``) have none: NVTX hands out the same for all, or none, while no profiler is attached.
"""

import sys
from functools import partial, wraps
from types import FrameType
from typing import Any, Callable, Optional, Tuple

from .. import runtime
from ..torch_compat import dynamo, rebinding
from . import range_markers

#: Files whose frames lie between a hooked function and the user's line that called it.
_nvtx_files = {__file__}


def hook_torch(module: Any) -> None:
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
    partial(_followed, lambda name: range_markers.push(name, _user_frame())),
    partial(_followed, lambda _: range_markers.pop(_user_frame())),
    partial(_followed, lambda name: range_markers.mark(name, _user_frame())),
)
_NATIVE = dict(zip(("rangePushA", "rangePop", "markA"), _WRAPPERS))
_PACKAGE = dict(zip(("push_range", "pop_range", "mark"), _WRAPPERS))


def hook_package(package: Any) -> None:
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
    if (
        isinstance(annotate, type) and "__reduce__" in annotate.__dict__
    ):  # else disabled by NVTX_DISABLE, without a name
        _add_files(sys.modules[annotate.__module__].__file__)
        _hook_annotate(annotate)


def _hook_annotate(annotate: Any) -> None:
    enter, leave, call = annotate.__enter__, annotate.__exit__, annotate.__call__

    @wraps(enter)
    def tuimon_enter(self: Any) -> Any:
        result = enter(self)
        if runtime.on and not runtime.is_compiling():
            range_markers.push(_message(self) or "", _user_frame())
        return result

    @wraps(leave)
    def tuimon_exit(self: Any, *error: Any) -> Any:
        result = leave(self, *error)
        if runtime.on and not runtime.is_compiling():
            range_markers.pop()
        return result

    @wraps(call)
    def tuimon_call(self: Any, function: Any) -> Any:
        from . import decorated

        name = _message(self) or str(getattr(function, "__name__", ""))
        return call(self, decorated.decorate(function, name))

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
