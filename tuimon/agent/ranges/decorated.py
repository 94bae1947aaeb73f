"""``@tuimon.phase("name")`` on functions and generators."""

from functools import wraps
from types import CodeType
from typing import Any, Callable, Generator, Optional

from .. import runtime
from ..torch_compat import dynamo
from . import range_markers

_GENERATOR = 0x20  # flags of code objects, as in ``inspect``, which takes milliseconds to import
_COROUTINE = 0x80


def decorate(function: Callable[..., Any], name: str) -> Any:
    """The function, with its runs marked as ranges."""
    code = getattr(function, "__code__", None)
    flags = code.co_flags if code is not None else 0
    if flags & _COROUTINE:  # coroutines of one thread overlap, and ranges nest: it has none
        return function
    wrapper = (_generator if flags & _GENERATOR else _function)(function, name, code)
    dynamo.skip(wrapper)
    return wrapper


def _is_monitored() -> bool:
    return runtime.on and not runtime.is_compiling()


def _function(function: Callable[..., Any], name: str, code: Optional[CodeType]) -> Any:
    @wraps(function)
    def tuimon_phase(*args: Any, **kwargs: Any) -> Any:
        if not runtime.on or runtime.is_compiling():
            return function(*args, **kwargs)
        range_markers.push_function(name, code)
        try:
            return function(*args, **kwargs)
        finally:
            range_markers.pop()

    return tuimon_phase


def _generator(function: Callable[..., Any], name: str, code: Optional[CodeType]) -> Any:
    """A range for each stretch inside the generator, not for those of its consumer."""

    @wraps(function)
    def tuimon_phase(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        resume, value = generator.send, None
        while True:
            pushed = _is_monitored()
            if pushed:
                range_markers.push_function(name, code)
            try:
                item = resume(value)
            except StopIteration as stop:
                return stop.value
            finally:
                if pushed:
                    range_markers.pop()
            try:
                value = yield item
                resume = generator.send
            except GeneratorExit:
                generator.close()
                raise
            except BaseException as error:
                resume, value = generator.throw, error

    return tuimon_phase
