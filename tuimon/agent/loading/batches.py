"""How large the batches are that a training gets: a few of them are measured, each in a marker.

One of each new loader, and then one a second at most. Only what a batch holds in lists, tuples, dicts and plain objects
is seen; a batch in which that is too much, or a tensor not dense, is not measured. No device is asked how much.
"""

import sys
from time import monotonic_ns
from typing import Any, Dict, List, Optional, Set

from .. import runtime
from ..outside import raised_by_us
from ..ring.layout import BATCH, LOADER_SHIFT, pack_batch
from ..torch_compat import captures
from ..torch_compat.unobserved import unobserved

#: Time between two rounds: a batch takes 6 us, one of 64 tensors 40, one with a list of 1000 numbers 150.
DUE_NS = 1_000_000_000
#: Fetches of a round: of loaders that take turns, a batch of each is measured.
_ROUND_FETCHES = 4
#: Most tensors of a batch, and most objects that are searched for them, this many levels deep.
_TENSORS_LIMIT = 64
_OBJECTS_LIMIT = 1024
_LEVELS = 6
_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))

#: Fetches from one look to the next whether a round is due.
_LOOK_FETCHES = 64


class _Due:
    """How many fetches may come until ``attend`` is to be called."""

    __slots__ = ("fetches",)

    def __init__(self) -> None:
        self.fetches = _LOOK_FETCHES


due = _Due()
_left = 0  # fetches left of this round
_measured: List[int] = []  # loaders of this round
_known: Set[int] = set()  # loaders that had a round of their own
_due_ns = 0


def arm(loader: int = 0) -> None:
    """Begin a round if one is due, or ``loader`` is new."""
    global _left, _due_ns
    now_ns = monotonic_ns()
    if now_ns < _due_ns and (not loader or loader in _known):
        return
    _known.add(loader)
    if _left <= 0:
        _measured.clear()
    _left, _due_ns = _ROUND_FETCHES, now_ns + DUE_NS
    due.fetches = 1


def attend(iterator: int, batch: Any) -> None:
    """Measure this batch if a round is under way, or due; call after a fetch, when ``due.fetches`` is 0."""
    if _left <= 0:
        arm()
    if _left > 0:
        _inspect(iterator, batch)
    due.fetches = 1 if _left > 0 else _LOOK_FETCHES


def _inspect(iterator: int, batch: Any) -> None:
    """Measure a batch, if it is the first of its loader in this round. Never raises."""
    global _left
    _left -= 1
    try:
        loader = iterator >> LOADER_SHIFT
        if loader and loader not in _measured:
            _measured.append(loader)
            with unobserved():
                found = _measure(batch, sys.modules["torch"])
            if found is not None:
                runtime.emit(BATCH, found, loader)
    except raised_by_us(Exception):  # tensors of a kind of their own
        return


def forget() -> None:
    """Begin anew: the next ring will know none of the loaders."""
    global _left, _due_ns
    _left = _due_ns = 0
    _known.clear()


def _measure(batch: Any, torch: Any) -> Optional[int]:
    tensors = _tensors(batch, torch.Tensor)
    if not tensors or any(tensor.layout is not torch.strided for tensor in tensors):
        return None
    on_cpu = [tensor for tensor in tensors if tensor.is_cpu]
    shape = tensors[0].shape
    return pack_batch(
        sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        shape[0] if shape else None,
        len(on_cpu) == len(tensors),
        _are_pinned(on_cpu, torch),
    )


def _tensors(batch: Any, tensor_class: type) -> Optional[List[Any]]:
    """The tensors in a batch, each once, the outer ones first; None where there is too much. Calls none of its code."""
    tensors: Dict[int, Any] = {}
    level = [batch]
    objects = 0
    for _ in range(_LEVELS):
        objects += len(level)
        if objects > _OBJECTS_LIMIT or len(tensors) > _TENSORS_LIMIT:
            return None
        inner: List[Any] = []
        for value in level:
            kind = type(value)
            if issubclass(kind, tensor_class):
                tensors[id(value)] = value
            elif issubclass(kind, dict):
                inner.extend(dict.values(value))
            elif issubclass(kind, (list, tuple)):
                inner.extend((list if issubclass(kind, list) else tuple).__iter__(value))
            elif kind not in _PLAIN and kind.__module__ != "builtins":
                inner.extend(_attributes(value))
        level = inner
    return list(tensors.values()) if not level and len(tensors) <= _TENSORS_LIMIT else None


def _attributes(value: Any) -> List[Any]:
    """What an object holds, such as a dataclass or a mapping that is no dict."""
    try:
        return list(object.__getattribute__(value, "__dict__").values())
    except raised_by_us(AttributeError):  # it has slots, or none
        return []


def _are_pinned(tensors: List[Any], torch: Any) -> Optional[bool]:
    """True if these tensors of the CPU are in pinned memory; None where that is unknown.

    torch asks the driver for the attributes of the pointer, in the context of a device that has one: that neither waits
    nor allocates. Where no device has one it would make one. (``CUDAHooks::isPinnedPtr``)
    """
    try:
        cuda, native = sys.modules["torch.cuda"], torch._C
        if not tensors or not cuda.is_initialized() or captures.any_open():
            return None
        if not any(native._cuda_hasPrimaryContext(index) for index in range(cuda.device_count())):
            return None
        if native._cuda_isCurrentStreamCapturing():
            return None
        return all(tensor.is_pinned() for tensor in tensors if tensor.numel())
    except raised_by_us(Exception):
        return None
