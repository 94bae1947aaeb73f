"""The beginning of an epoch: ``iter(loader)`` starts workers, or restarts persistent ones; and its early end.

Two markers an epoch, around methods of torch's iterator with workers. No frame of ours stands in a traceback.
"""

import sys
from functools import wraps
from typing import Any, Callable

from .. import runtime
from ..loading import loader_facts
from ..outside import attempt
from ..ring.layout import ITER_BEGIN, ITER_END
from ..torch_compat import dynamo, rebinding
from ..torch_compat.tracebacks import hide_frame


def hook_iterators(dataloader: Any) -> None:
    """Put markers around an iterator with workers: its making, its reuse for another epoch, its end within one."""
    iterator_class = dataloader._MultiProcessingDataLoaderIter
    rebinding.rebind(iterator_class, "__init__", _wrapped(iterator_class.__dict__["__init__"]))
    rebinding.rebind(iterator_class, "_reset", _wrapped(iterator_class.__dict__["_reset"]))
    if "__del__" in iterator_class.__dict__:
        rebinding.rebind(iterator_class, "__del__", _wrapped_end(iterator_class.__dict__["__del__"]))


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def tuimon_iter(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("first_iter") or not runtime.on:  # ``__init__`` calls ``_reset``
            return original(self, *args, **kwargs)
        runtime.emit(ITER_BEGIN)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            runtime.emit(ITER_END)
            hide_frame(error)
            raise
        runtime.emit(ITER_END, iterator_id(self))
        return result

    dynamo.skip(tuimon_iter)
    return tuimon_iter


def _wrapped_end(original: Callable[..., Any]) -> Callable[..., Any]:
    """Around an iterator's deletion, which waits for its workers unless the fetch that found its end has done so."""
    is_finalizing, numbers = sys.is_finalizing, loader_facts.numbers  # no name of a module is sure to be there then

    @wraps(original)
    def tuimon_del(self: Any) -> Any:
        number = not is_finalizing() and not self.__dict__.get("_shutdown", True) and numbers.get(id(self))
        marked = bool(number) and runtime.on
        if marked:
            runtime.emit(ITER_BEGIN, number)
        try:
            return original(self)
        except BaseException as error:  # of one that could not be made: Python prints it
            hide_frame(error)
            raise
        finally:
            if marked:
                runtime.emit(ITER_END)

    dynamo.skip(tuimon_del)
    return tuimon_del


def iterator_id(iterator: Any) -> int:
    """The id that this iterator's fetches carry."""
    return loader_facts.numbers.get(id(iterator)) or attempt(loader_facts.iterator_id, iterator) or 0
