"""Measures the size of some of a training's batches, and the progress of their epoch; writes both as markers.

One batch of each new loader is measured, then at most ten a second. Only tensors in lists, tuples, dicts and plain
objects are seen; a batch with too many objects, or a tensor that is not dense, is not measured. No device is queried.
"""

import ctypes
import gc
import sys
from array import array
from time import monotonic_ns
from types import CellType, FrameType, GeneratorType
from typing import Any, Dict, List, Optional, Set, Tuple

from .. import runtime
from ..cuda import any_capture
from ..outside import attempt
from ..ring.layout import BATCH, LOADER_SHIFT, POSITION, TENSORS, TOKENS, pack_batch, pack_pair
from ..torch_compat import compilations
from ..torch_compat.unobserved import ByObject, attributes, has_plain_size, is_tensor, read, undispatched, unobserved

#: Least time between two rounds. Texts differ in length: tokens estimated from 30 batches are 3 % off, from 300 batches
#: 1 %.
DUE_NS = 100_000_000
#: After a batch that took long to measure, a pause this many times as long follows, up to 1 s. Most batches take 6 us,
#: one of 64 tensors takes 40, one with a list of 1000 numbers 150, one of 1000 tensors 1000.
PAUSE_FACTOR = 5000
_MAX_NS = 1_000_000_000
#: Fetches in a round: if loaders take turns, a batch of each is measured.
_ROUND_FETCHES = 4
#: Most objects of a batch that are searched for tensors, this many levels deep.
_OBJECTS_LIMIT = 1024
_LEVELS = 6
#: torch's query whether a device has a context, in ``torch._C``.
_CONTEXT = "_cuda_hasPrimaryContext"
_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))

#: Keys under which batches of text hold the numbers of their tokens, and the mask that leaves out padding.
_IDS = ("input_ids", "token_ids", "tokens")
_MASK = "attention_mask"
#: Most rows of a mask or of ids in which padding is counted, and their bytes: that takes 0.1 ms.
_ROWS, ROWS_BYTES = 64, 1 << 15
#: Whole numbers by their size in bytes, as ``array`` names them.
_WHOLE = {1: "b", 4: "i", 8: "q"}
#: The iterators that torch's samplers go through.
_INDEX_ITERATORS: Tuple[type, ...] = (type(iter([])), type(iter(range(0))))
#: Types that hold these: generators (before Python 3.11 by their frames), variables of comprehensions; tried in turn.
_HOLDERS = (GeneratorType, FrameType, *_INDEX_ITERATORS, CellType)

#: For each sampler: the number of batches that it gives in an epoch.
epoch_lengths = ByObject()
#: When the next batch is measured, or torch.compile's notes are read; the hook compares the time with this.
due_ns = 0
_left = 0  # fetches left of this round
_measured: List[int] = []  # loaders of this round
_known: Set[int] = set()  # loaders that had a round of their own
_rest_until_ns = 0


def arm(loader: int) -> None:
    """Begin a round with the next fetch if the loader is new, or extend the one under way by a full round."""
    global due_ns, _left
    if loader not in _known:
        _known.add(loader)
        due_ns, _left = 0, _ROUND_FETCHES if _left else 0


def attend(iterator: Any, number: int, batch: Any) -> None:
    """Measure this batch, one of a round; call after each fetch from ``due_ns`` on. ``number``: the iterator's."""
    global due_ns, _left, _rest_until_ns
    compilations.report(runtime)
    runtime.mark_optimizer()
    if _left <= 0:
        _measured.clear()
        _left, _rest_until_ns = _ROUND_FETCHES, monotonic_ns() + DUE_NS
    inspect_batch(iterator, number, batch)
    if _left <= 0:
        due_ns = _rest_until_ns


def inspect_batch(iterator: Any, number: int, batch: Any) -> None:
    """Measure a batch, if it is the first of its loader in this round."""
    global _left, _rest_until_ns
    _left -= 1
    loader = number >> LOADER_SHIFT
    if not loader or loader in _measured:
        return
    _measured.append(loader)
    begin_ns = monotonic_ns()
    tensors, found, tokens = attempt(_figures, batch) or (None, None, None)  # none for tensors of an unknown kind
    position = attempt(position_of, iterator)
    for kind, figure in ((TENSORS, tensors), (TOKENS, tokens), (BATCH, found), (POSITION, position)):
        if figure is not None:
            runtime.emit(kind, figure, loader)
    end_ns = monotonic_ns()
    _rest_until_ns = max(_rest_until_ns, end_ns + min(PAUSE_FACTOR * (end_ns - begin_ns), _MAX_NS))


def _figures(batch: Any) -> Optional[Tuple[Optional[int], int, Optional[int]]]:
    torch = sys.modules["torch"]
    with unobserved():
        found = measure(batch, torch)
        return (*found, count_tokens(batch)) if found is not None else None


def forget() -> None:
    """Start again: the next ring will know none of the loaders."""
    global due_ns, _left
    due_ns = _left = 0
    _known.clear()
    epoch_lengths.clear()


def measure(batch: Any, torch: Any) -> Optional[Tuple[Optional[int], int]]:
    """The values of a batch's TENSORS and BATCH markers; None if it cannot be measured."""
    tensors = _tensors(batch)
    if not tensors or not all(has_plain_size(each) and read(each, "layout") is torch.strided for each in tensors):
        return None
    on_cpu = [tensor for tensor in tensors if read(tensor, "is_cpu")]
    shape = read(tensors[0], "shape")
    packed = pack_batch(
        sum(read(tensor, "numel") * read(tensor, "element_size") for tensor in tensors),
        shape[0] if shape else None,
        len(on_cpu) == len(tensors),
        are_pinned(on_cpu, torch),
    )
    storages = [read(tensor, "untyped_storage") for tensor in on_cpu]
    held = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values()) >> 10
    return (pack_pair(len(tensors), held), packed) if packed is not None else None


def _tensors(batch: Any) -> Optional[List[Any]]:
    """The tensors in a batch, each once, the outer ones first; None if it has too many objects. Runs no code of it."""
    tensors: Dict[int, Any] = {}
    level = [batch]
    objects = 0
    for _ in range(_LEVELS):
        objects += len(level)
        if objects > _OBJECTS_LIMIT:
            return None
        inner: List[Any] = []
        for value in level:
            kind = type(value)
            if is_tensor(value):
                tensors[id(value)] = value
            elif issubclass(kind, dict):
                inner.extend(dict.values(value))
            elif issubclass(kind, (list, tuple)):
                inner.extend((list if issubclass(kind, list) else tuple).__iter__(value))
            elif kind not in _PLAIN and kind.__module__ != "builtins":
                inner.extend(attributes(value).values())
        level = inner
    return list(tensors.values()) if not level else None


def count_tokens(batch: Any) -> Optional[int]:
    """The number of tokens of a batch of text, by its shape, and of padding among them; None for any other batch.

    Rows of whole numbers that no name shows to be text are text if they are padded.
    """
    first = batch
    if issubclass(type(batch), (list, tuple)) and batch:
        first = next((list if issubclass(type(batch), list) else tuple).__iter__(batch))
    for fields in (first, *attributes(first).values()):  # such as a BatchEncoding, which holds a dict
        if not issubclass(type(fields), dict):
            continue
        for key in _IDS:
            ids = dict.get(fields, key)
            if is_tensor(ids) and read(ids, "dim") and not read(ids, "is_floating_point"):
                return pack_pair(read(ids, "numel"), _padding(ids, dict.get(fields, _MASK)))
    padding = _padding(first) if is_tensor(first) and read(first, "dim") == 2 else None
    return pack_pair(read(first, "numel"), padding) if padding else None


def _padding(ids: Any, mask: Any = None) -> Optional[int]:
    """The number of positions that a mask of zeros and ones leaves out; None if they cannot be read in one piece.

    Without a mask, the positions of the id that is at the end of rows, at least twice in a row, and nowhere before.
    Example: 5 in ``1 2 3 4``, ``5 6 0 0``, ``7 0 0 0``; 0 if one of these began with a 0.
    """
    rows = _rows(ids if mask is None else mask)
    total = sum(map(len, rows))
    if mask is None:
        ends = [row[-1] for row in rows if row[-2:-1] == row[-1:]]
        pad = max(set(ends), key=ends.count) if ends else 0
        found = [row.count(pad) for row in rows] if ends else [0]
        if sum(found) == total or any(row[len(row) - n :].count(pad) < n for row, n in zip(rows, found) if n):
            found = [0]
    else:
        found = [row.count(0) for row in rows]
        if mask.shape != read(ids, "shape") or sum(found) + sum(row.count(1) for row in rows) < total:
            return None
    return sum(found) * read(ids, "numel") // total if total else None


def _rows(tensor: Any) -> List[List[int]]:
    """Rows of a tensor, evenly spread; none if it is not of whole numbers, in one piece of the CPU's memory.

    Its memory is read, and no function of torch is called that a profiler or a mode of the program would see.
    """
    torch = sys.modules["torch"]
    if type(tensor) is not torch.Tensor or tensor.dtype not in (torch.bool, torch.int32, torch.int64):
        return []
    width = tensor.shape[-1] * tensor.element_size() if tensor.dim() else 0
    size, most = tensor.numel() * tensor.element_size(), min(_ROWS, ROWS_BYTES // (width or 1))
    if not (width and most and tensor.is_cpu and tensor.is_contiguous()):
        return []
    if tensor.untyped_storage().nbytes() < size + tensor.storage_offset() * tensor.element_size():  # it was freed
        return []
    apart, kind = -(-size // width // most), _WHOLE[tensor.element_size()]
    places = range(tensor.data_ptr() + apart // 2 * width, tensor.data_ptr() + size, (apart or 1) * width)
    return [array(kind, ctypes.string_at(at, width)).tolist() for at in places]


def position_of(iterator: Any) -> Optional[int]:
    """The number of batches that an iterator has given, and that of its epoch; None if it does not count them."""
    state = attributes(iterator)
    given = state.get("_num_yielded")
    if type(given) is not int:
        return None
    return pack_pair(given, None if state.get("_dataset_kind") else _length(state))


def _length(iterator: Dict[str, Any]) -> Optional[int]:
    """Batches of an epoch, as ``len(loader)`` gives them; None with a sampler of the program. Computed once a loader.

    ``len`` is not called, as it may be the program's code: torch's samplers have called it at the start of the epoch.
    """
    batch_sampler = iterator["_index_sampler"]
    known: Optional[int] = epoch_lengths.get(id(batch_sampler))
    if known is not None:
        return known
    state = attributes(batch_sampler)
    sampler = state.get("sampler", batch_sampler)
    if not all(type(each).__module__.startswith("torch.utils.data.") for each in (batch_sampler, sampler)):
        return None
    length = _indices(sampler, iterator["_sampler_iter"])
    if length is None:
        return None
    if sampler is not batch_sampler:
        size = state["batch_size"]
        length = length // size if state["drop_last"] else -(-length // size)
    epoch_lengths.attach(length, batch_sampler)
    return length


def _indices(sampler: Any, iterator: Any) -> Optional[int]:
    """The number of indices that a torch sampler gives in an epoch, by its own or its iterator's data.

    ::

        <generator BatchSampler.__iter__>  ->  <generator RandomSampler.__iter__>  ->  <list_iterator>, of all indices
        <generator BatchSampler.__iter__>  ->  <range_iterator>, of a SequentialSampler
    """
    state = attributes(sampler)
    number = state.get("num_samples", state.get("_num_samples"))
    if type(number) is int or state.get("replacement"):
        return number
    for _ in range(_LEVELS):
        kind = type(iterator)
        if kind in _INDEX_ITERATORS:
            source = iterator.__reduce__()[1][0]  # from Python 3.12 on only what is left of a range
            return (source.stop if kind is _INDEX_ITERATORS[1] else len(source)) or None  # 0: it is at its end
        held = gc.get_referents(iterator)
        iterator = next((each for kind in _HOLDERS for each in held if type(each) is kind), None)
    return None


def are_pinned(tensors: List[Any], torch: Any) -> Optional[bool]:
    """True if these CPU tensors are in pinned memory; None if that is unknown.

    torch asks the driver for the attributes of the pointer, in the context of a device that has one: that neither waits
    nor allocates. If no device had a context, torch would make one. (``CUDAHooks::isPinnedPtr``)
    """
    cuda, native = sys.modules["torch.cuda"], torch._C
    if not tensors or not cuda.is_initialized() or any_capture() or not hasattr(native, _CONTEXT):
        return None
    if not any(getattr(native, _CONTEXT)(index) for index in range(cuda.device_count())):
        return None
    if native._cuda_isCurrentStreamCapturing():
        return None
    with undispatched():
        return all(read(tensor, "is_pinned") for tensor in tensors if read(tensor, "numel"))
