"""A package ``torch`` of plain Python with what our hooks take hold of, for Pythons that have no torch."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "__init__": "__version__ = '0.0'\nfrom . import amp, autograd, optim, utils\n",
    "amp/__init__": "from . import grad_scaler\n",
    "amp/grad_scaler": "class GradScaler:\n    def step(self, optimizer):\n        return optimizer.step()\n",
    "autograd/__init__": """
def _engine_run_backward(outputs):
    if outputs == "bad":
        raise RuntimeError("no graph")
    return outputs


def backward(outputs):
    return _engine_run_backward(outputs)
""",
    "optim/__init__": "from . import optimizer\nfrom .optimizer import Optimizer\n",
    "optim/optimizer": """
_before, _after = {}, {}


class _Handle:
    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook
        hooks[self] = hook

    def remove(self):
        del self.hooks[self]


def register_optimizer_step_pre_hook(hook):
    return _Handle(_before, hook)


def register_optimizer_step_post_hook(hook):
    return _Handle(_after, hook)


class Optimizer:
    def step(self):
        for hook in list(_before.values()):
            hook(self, (), {})
        for hook in list(_after.values()):
            hook(self, (), {})
""",
    "utils/__init__": "from . import data\n",
    "utils/data/__init__": "from . import _utils, dataloader\nfrom .dataloader import DataLoader\n",
    "utils/data/_utils/__init__": "from . import fetch, worker\n",
    "utils/data/_utils/worker": "_worker_info = None\n",
    "utils/data/_utils/fetch": """
class _MapDatasetFetcher:
    def __init__(self, dataset, collate_fn):
        self.dataset, self.collate_fn = dataset, collate_fn

    def fetch(self, indices):
        return self.collate_fn([self.dataset[index] for index in indices])


class _IterableDatasetFetcher(_MapDatasetFetcher):
    def fetch(self, indices):
        return self.collate_fn(list(self.dataset))
""",
    "utils/data/dataloader": """
from ._utils.fetch import _MapDatasetFetcher


class Sampler:
    batch_size = 2


class DataLoader:
    def __init__(self, dataset):
        self.dataset, self.sampler = dataset, Sampler()

    def __iter__(self):
        return _SingleProcessDataLoaderIter(self)


class _BaseDataLoaderIter:
    _num_workers = _dataset_kind = 0
    _auto_collation = True
    _pin_memory = _persistent_workers = False

    def __init__(self, loader):
        self._dataset, self._index_sampler = loader.dataset, loader.sampler
        self._dataset_fetcher = _MapDatasetFetcher(loader.dataset, list)
        self._next = iter(range(0, len(loader.dataset), 2))

    def __iter__(self):
        return self

    def __next__(self):
        at = next(self._next)
        return self._dataset_fetcher.fetch([at, at + 1])


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    pass


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        self._reset(loader, first_iter=True)

    def _reset(self, loader, first_iter=False):
        self.resets = getattr(self, "resets", 0) + 1
""",
}


def written(folder: Path) -> str:
    """Write the package; the folder to put on PYTHONPATH."""
    for name, text in FILES.items():
        path = folder / "fake" / "torch" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder / "fake")
