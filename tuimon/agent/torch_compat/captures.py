"""Which CUDA graphs are being captured in this process, in any thread.

A capture in the "global" mode, torch's default, is invalidated by any thread that queries an event or a stream
meanwhile (pytorch #104487, #148594). ``torch.cuda.graph``, ``make_graphed_callables`` and torch.compile's graphs all go
through ``CUDAGraph.capture_begin`` and ``capture_end``; ``torch.accelerator.Graph`` has the same two.
"""

from functools import wraps
from typing import Any, Callable, Set

from ..outside import hide_frame
from . import dynamo, rebinding

open_captures: Set[int] = set()


def any_open() -> bool:
    """True if a graph is being captured."""
    return bool(open_captures)


def hook(graphs: Any, before_begin: Callable[[], None]) -> None:
    """Follow captures. ``graphs`` is the module ``torch.cuda.graphs`` or ``torch.accelerator.graphs``.

    ``before_begin`` is called before each capture: it waits until no other thread touches an event.
    """
    graph_class = getattr(graphs, "CUDAGraph", None) or getattr(graphs, "Graph", None)
    begin = getattr(graph_class, "__dict__", {}).get("capture_begin")
    end = getattr(graph_class, "__dict__", {}).get("capture_end")
    if begin is None or end is None:
        return

    @wraps(begin)
    def tuimon_capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        open_captures.add(id(self))
        before_begin()
        try:
            return begin(self, *args, **kwargs)
        except BaseException as error:
            open_captures.discard(id(self))
            hide_frame(error)
            raise

    @wraps(end)
    def tuimon_capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return end(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            open_captures.discard(id(self))

    dynamo.skip(tuimon_capture_begin, tuimon_capture_end)
    rebinding.rebind(graph_class, "capture_begin", tuimon_capture_begin)
    rebinding.on_undo(open_captures.clear)  # no end will be noticed
    rebinding.rebind(graph_class, "capture_end", tuimon_capture_end)
