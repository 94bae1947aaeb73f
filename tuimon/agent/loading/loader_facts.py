"""The trainer's records of its DataLoaders: facts of each loader, once, and the ready batches at every fetch.

A loader is identified by its sampler, which outlives the iterators (one an epoch). Its facts are interned in the ring
as a name whose id stands in every fetch marker. Nothing here keeps a loader or its data alive.
"""

import itertools
import json
from typing import Any, Dict, List, Tuple

from .. import runtime
from ..outside import attempt
from ..ring.layout import LOADER_SHIFT, WORKER
from ..torch_compat.unobserved import ByObject, attributes, dataset_name, defined_at, item_place
from . import batches, worker

_LOADERS_LIMIT = 64
_READY_LIMIT = 0xFFFF

_next_iterator = itertools.count(0).__next__
#: Facts as text -> the numbers of the loaders that they are, or were, true of.
_alike: Dict[str, List[int]] = {}
#: For each sampler: id of the writer of the ring that has the loader's facts, their name id, the dataset's name, and
#: the loader's number.
_interned = ByObject()
#: For each iterator: the id in its markers.
numbers = ByObject()


def iterator_id(iterator: Any) -> int:
    """The id in this iterator's markers: a new one."""
    number: int = _next_iterator() % 0xFFFF + 1
    fetcher, writer = attributes(iterator).get("_dataset_fetcher"), runtime.writer()
    if writer is None:  # no ring yet: try again at the next fetch
        worker.leave_untimed(fetcher)  # a loader inside a worker's dataset
        return number
    loader, dataset = attempt(_register, iterator, writer) or (0, "")
    number |= loader << LOADER_SHIFT
    numbers.attach(number, iterator)
    batches.arm(loader)
    worker.time_in_process(iterator, fetcher, loader, dataset)  # last: it fails while another process claims a slot
    return number


def forget() -> None:
    """Start again: the next ring will know none of the loaders."""
    numbers.clear()
    _interned.clear()
    _alike.clear()
    batches.forget()


def ready_batches(iterator: Any) -> int:
    """Batches that wait for the trainer, plus one; 0 if that is unknown. Takes 0.5 us.

    Unknown for a loader that is not torch's, and if queues do not know their size (macOS).
    """
    number: int = (attempt(_ready, iterator) or 0) if getattr(iterator, "_num_workers", 0) else 0
    return number if 0 < number < _READY_LIMIT else 0


def _ready(iterator: Any) -> Any:
    """Batches received out of order, and batches that have arrived (with pin_memory: arrived and pinned)."""
    return len(iterator._task_info) - iterator._tasks_outstanding + iterator._data_queue.qsize() + 1


def _register(iterator: Any, writer: Any) -> Tuple[int, str]:
    """Name id of the loader's facts, and its dataset's name. Gathered once: an epoch may last a few milliseconds."""
    sampler = iterator._index_sampler
    owner, loader, dataset, _ = _interned.get(id(sampler), (None, 0, "", 0))
    if owner != id(writer):
        facts = _facts(iterator)
        dataset, number = str(facts["dataset"]), _number_of(facts, sampler)
        loader = writer.name_id(_json({"n": number, **facts}))
        _interned.attach((id(writer), loader, dataset, number), sampler)
    for process in getattr(iterator, "_workers", ()):
        writer.emit(WORKER, process.pid, loader)
    return loader, dataset


def _facts(iterator: Any) -> Dict[str, Any]:
    """The settings that the iterator was made with. Reads attributes of torch's own classes only."""
    workers = getattr(iterator, "_workers", ())
    sampler = iterator._index_sampler
    return {
        "dataset": dataset_name(iterator._dataset),
        "kind": "iterable" if iterator._dataset_kind else "map",
        "workers": iterator._num_workers,
        "prefetch": getattr(iterator, "_prefetch_factor", None),
        "batch": attributes(sampler).get("batch_size") if iterator._auto_collation else None,
        "pin": bool(iterator._pin_memory),
        "persistent": bool(iterator._persistent_workers),
        "in_order": getattr(iterator, "_in_order", None),  # since torch 2.6
        "context": getattr(getattr(workers[0], "_popen", None), "method", None) if workers else None,
        "item": item_place(iterator._dataset, iterable=bool(iterator._dataset_kind)),
        "collate": defined_at(iterator._collate_fn),
    }


def _number_of(facts: Dict[str, Any], sampler: Any) -> int:
    """The loader's number: its own, or that of an equal loader that is gone, else a new one."""
    alike = _alike.setdefault(_json(facts), [])
    taken = [number for key, (*_, number) in list(_interned.items()) if key != id(sampler)]
    free = next((number for number in alike if number not in taken), None)
    if free is None:
        free = sum(map(len, _alike.values()))
        if free >= _LOADERS_LIMIT:
            raise ValueError("too many loaders")
        alike.append(free)
    return free


def _json(facts: Dict[str, Any]) -> str:
    return json.dumps(facts, separators=(",", ":"))
