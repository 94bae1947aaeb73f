"""What counts frames finds those of plain torch: ``stacklevel`` of warnings and of logging, filters by module."""

import pytest

from tests.agent.programs import environment
from tests.warm_torch import warm_python

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.trust]

#: Each place of the program's below torch names all frames that it stands on, by number.
PROGRAM = """
import logging, sys, warnings
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

warnings.simplefilter("always")
warnings.filterwarnings("ignore", message=".*(lr_scheduler|pin_memory|scaler).*")
logging.basicConfig(format="%(pathname)s %(lineno)d %(funcName)s %(message)s")


def warn_at(place):
    for level in range(1, 16):
        warnings.warn(f"{place} {level}", stacklevel=level)
        if sys.version_info >= (3, 11):
            logging.warning(f"{place} {level}", stacklevel=level)


class Rows(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        warn_at("item")
        return torch.ones(2)


class Order:
    def __len__(self):
        return 2

    def __iter__(self):
        warn_at("order")
        return iter(range(2))


class Stream(IterableDataset):
    def __repr__(self):
        return "Stream()"

    def __len__(self):
        return 1

    def __iter__(self):
        warn_at("stream")
        return iter(torch.ones(3, 2))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, slope):
        warn_at("backward")
        return slope * 2


class Told(torch.optim.SGD):
    def step(self, closure=None):
        warn_at("step")
        return super().step(closure)


def collate(items):
    warn_at("collate")
    return torch.stack(items)


def main():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer, scaler = Told([weight], lr=0.1), torch.amp.GradScaler("cpu", enabled=True)
    for workers in (0, 1):
        for batch in DataLoader(Rows(), 2, collate_fn=collate, sampler=Order(), num_workers=workers):
            loss = Doubled.apply(weight * batch).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            torch.autograd.grad(Doubled.apply(weight).sum(), weight)
    stream = DataLoader(Stream())
    len(stream)
    for batch in stream:
        pass
    del stream
    import nvtx  # which warns of its age


main()
warnings.simplefilter("error")
warnings.filterwarnings("ignore", module="torch.utils.data")
warn_at = print  # of itself the data set warns no more
list(DataLoader(Rows(), collate_fn=lambda items: warnings.warn("of torch, by its place", stacklevel=2)))
"""


def test_the_frames_that_stacklevel_counts(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    (tmp_path / "old" / "nvtx").mkdir(parents=True)
    (tmp_path / "old" / "nvtx" / "__init__.py").write_text("import warnings\nwarnings.warn('old', stacklevel=2)\n")
    path = str(tmp_path / "old")
    plain = warm_python(str(script), env=environment(None, path=path), cwd=tmp_path)
    ours = warm_python(str(script), env=environment(tmp_path / "rings", path=path), cwd=tmp_path)
    assert (plain.returncode, plain.stdout) == (0, "item\nitem\n"), plain.stderr
    places = ("item 15", "order 15", "stream 15", "collate 15", "backward 15", "step 15", "was reported to be 1", "old")
    assert all(place in plain.stderr for place in places)
    assert ours.stderr.splitlines() == plain.stderr.splitlines()
    assert (ours.returncode, ours.stdout) == (0, plain.stdout)
    assert (tmp_path / "rings").is_dir()  # it was instrumented
