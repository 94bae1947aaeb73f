"""The beginning of an epoch: ``iter(loader)`` starts workers, or restarts persistent ones.

Two markers an epoch, around two methods of torch's iterator with workers. No frame of ours stands in a traceback.
"""

from functools import wraps
from typing import Any, Callable

from .. import runtime
from ..ring.layout import ITER_BEGIN, ITER_END
from ..torch_compat import dynamo, rebinding
from ..torch_compat.tracebacks import hide_frame
from . import loader_facts


def hook_iterators(dataloader: Any) -> None:
    """Put markers around the making of an iterator with workers, and around its reuse for another epoch."""
    iterator_class = dataloader._MultiProcessingDataLoaderIter
    rebinding.rebind(iterator_class, "__init__", _wrapped(iterator_class.__dict__["__init__"]))
    rebinding.rebind(iterator_class, "_reset", _wrapped(iterator_class.__dict__["_reset"]))


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
        runtime.emit(ITER_END, _iterator_id(self))
        return result

    dynamo.skip(tuimon_iter)
    return tuimon_iter


def _iterator_id(iterator: Any) -> int:
    """The id that this iterator's fetches carry."""
    number: int = iterator.__dict__.get("_tuimon_iterator") or loader_facts.iterator_id(iterator)
    return number
