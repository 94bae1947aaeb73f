"""The in-loop API, ``tuimon.phase``, ``tuimon.mark`` and ``tuimon.step``: no-ops unless this process is monitored."""

import sys

from .outside import variable

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs milliseconds, in every process that imports tuimon
    from types import TracebackType
    from typing import Any, Callable, Optional, Tuple, Type, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

#: The modules ``runtime`` and ``ranges``, once there is a ring to write to.
_runtime: "Any" = None
_ranges: "Any" = None


def connect(runtime: "Any", ranges: "Any") -> None:
    """Have calls emit markers from now on; called once torch has been imported."""
    global _runtime, _ranges
    _ranges = ranges
    _runtime = runtime


class phase:  # reads as a statement: with tuimon.phase("augment"):
    """A named part of the loop, ``with tuimon.phase("augment"):`` or ``@tuimon.phase("augment")``.

    Nests, and may be entered again and from several threads. As a decorator: of a generator, the time inside it
    counts; a coroutine is not measured.
    """

    __slots__ = ("_name",)
    _name: str

    def __new__(cls, name: str) -> "phase":
        """Not ``__init__``: Dynamo of torch 2.4 enters no context manager that has one."""
        self = super().__new__(cls)
        self._name = name
        return self

    def __getnewargs__(self) -> "Tuple[str]":
        return (self._name,)

    def __enter__(self) -> "phase":
        runtime = _runtime
        if runtime is not None and runtime.on and not runtime.is_compiling():
            _ranges.push(self._name, sys._getframe(1))
        return self

    def __exit__(
        self,
        error_type: "Optional[Type[BaseException]]",
        error: "Optional[BaseException]",
        traceback: "Optional[TracebackType]",
    ) -> None:
        runtime = _runtime
        if runtime is not None and runtime.on and not runtime.is_compiling():
            _ranges.pop()

    def __call__(self, function: "F") -> "F":
        """The function, each run of it a range; unchanged with ``TUIMON_MARKERS=0``."""
        if variable("TUIMON_MARKERS") == "0":
            return function
        from . import ranges

        return ranges.decorate(function, self._name)  # type: ignore[no-any-return]  # a wrapper like the function


def mark(name: str) -> None:
    """Mark this moment and line."""
    runtime = _runtime
    if runtime is not None and runtime.on and not runtime.is_compiling():
        _ranges.mark(name, sys._getframe(1))


def step(*, samples: "Optional[int]" = None, tokens: "Optional[int]" = None) -> None:
    """End a training step. Needed only if tuimon finds the wrong steps by itself.

    ``samples``, ``tokens``: how many this step trained on, for the rates on the screen. Anything but an int is ignored:
    a tensor would have to be waited for.
    """
    runtime = _runtime
    if runtime is not None and runtime.on and not runtime.is_compiling():
        _ranges.step(samples, tokens)


# pickled under the name that users know: the module they come from may be the injected copy
phase.__module__ = mark.__module__ = step.__module__ = "tuimon"
