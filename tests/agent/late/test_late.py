"""The agent in a training that runs already: installed late, withdrawn, and nothing left of it."""

import gc
import os
import sys

import pytest

from tests.agent.batches import Batches
from tuimon.agent import late, runtime
from tuimon.agent.ring.layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    BATCH,
    FETCH_BEGIN,
    FETCH_END,
    GC_PAUSE,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    OPTIMIZER_MADE,
    POSITION,
    RANGE_POP,
    RANGE_PUSH,
)
from tuimon.agent.ring.reader import RingReader

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

pytestmark = pytest.mark.trust

FETCH = [FETCH_BEGIN, FETCH_END]
UPDATE = [BACKWARD_BEGIN, BACKWARD_END, OPTIMIZER_BEGIN, OPTIMIZER_END]


def markers():
    """Kinds of the markers in this process's ring."""
    reader = RingReader(runtime.writer().path)
    try:
        read = [marker.kind for _ in range(RingReader.HOLE_READS) for marker in reader.read()]
        return [kind for kind in read if kind not in (BATCH, GC_PAUSE, OPTIMIZER_MADE, POSITION)]
    finally:
        reader.close()


def state():
    """All that the hooks take hold of in torch and Python."""
    data, fetch = torch.utils.data.dataloader, torch.utils.data._utils.fetch
    optimizer = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
    owners = (
        data._BaseDataLoaderIter,
        data._MultiProcessingDataLoaderIter,
        fetch._MapDatasetFetcher,
        fetch._IterableDatasetFetcher,
        torch.autograd,
        torch.autograd.graph,
        torch.amp.GradScaler,
        torch.cuda.nvtx,
        torch.cuda.graphs.CUDAGraph if hasattr(torch.cuda.graphs, "CUDAGraph") else torch.cuda.graphs,
        optimizer,
        torch.optim.SGD,
    )
    found = {(owner, name): value for owner in owners for name, value in vars(owner).items()}
    found["pre"] = tuple(optimizer._global_optimizer_pre_hooks.items())
    found["post"] = tuple(optimizer._global_optimizer_post_hooks.items())
    return found | {"gc": tuple(gc.callbacks), "meta_path": tuple(sys.meta_path)}


def changed(before, after):
    return sorted(str(key) for key in before.keys() | after.keys() if before.get(key) is not after.get(key))


def same(before, after):
    """Whether both hold the same objects."""
    plain = [key for key in before if isinstance(key, str)]
    return not [name for name in changed(before, after) if name not in plain] and all(
        len(before[key]) == len(after[key])
        and all(a is b or a == b for a, b in zip(before[key], after[key], strict=True))
        for key in plain
    )


def test_what_exists_already_is_covered(rings, weight):
    """A live iterator, an optimizer whose ``step`` is kept in a local and wrapped by a scheduler, NVTX by name."""
    from torch.cuda.nvtx import range_push

    optimizer = torch.optim.SGD([weight], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    step, batches = optimizer.step, iter(DataLoader(Batches(6)))

    def train(batch):
        (weight * batch).sum().backward()
        step()
        scheduler.step()
        try:
            range_push("user")
        except RuntimeError:  # a torch without CUDA has no NVTX
            return

    train(next(batches))
    assert late.install_now(rings) == {"status": late.INSTALLED}
    for _ in range(2):
        train(next(batches))
    seen = markers()
    assert [kind for kind in seen if kind not in (RANGE_PUSH, RANGE_POP)] == [*FETCH, *UPDATE] * 2


def test_a_second_attach_finds_the_agent(rings):
    assert late.install_now(rings)["status"] == late.INSTALLED
    ring, hooked = runtime.writer(), state()
    assert late.install_now(rings) == {"status": late.PRESENT}
    assert runtime.writer() is ring and same(hooked, state())


@pytest.mark.parametrize("workers", [0, 1])
def test_withdrawn_is_as_it_was(rings, weight, workers):
    optimizer, batches = torch.optim.SGD([weight], lr=0.1), iter(DataLoader(Batches(8), num_workers=workers))
    next(batches)
    before, iterator = state(), dict(vars(batches))
    late.install_now(rings)
    assert not same(before, state())
    for _ in range(2):
        (weight * next(batches)).sum().backward()
        optimizer.step()
    assert vars(batches).keys() == iterator.keys()
    late.withdraw()
    assert same(before, state()), changed(before, state())
    assert vars(batches).keys() == iterator.keys()
    assert len([1 for _ in batches]) == 5


def test_the_ring_goes_with_the_hooks(rings, weight):
    late.install_now(rings)
    (weight * 2).sum().backward()
    path = runtime.writer().path
    assert path in mapped() and path not in opened()
    late.withdraw()
    gc.collect()
    assert path not in mapped()
    assert not os.path.exists(path)


def mapped():
    """The files that this process has mapped, as one text."""
    with open("/proc/self/maps") as maps:
        return maps.read()


def opened():
    """The files that this process has open, as one text."""
    numbers = os.listdir("/proc/self/fd")
    return " ".join(os.readlink(f"/proc/self/fd/{n}") for n in numbers if os.path.lexists(f"/proc/self/fd/{n}"))


def test_again_after_a_withdrawal(rings, weight):
    batches = iter(DataLoader(Batches(6)))
    seen = []
    for _ in range(2):
        assert late.install_now(rings)["status"] == late.INSTALLED
        (weight * next(batches)).sum().backward()
        reader = RingReader(runtime.writer().path)
        read = [marker for _ in range(RingReader.HOLE_READS) for marker in reader.read()]
        found = [marker for marker in read if marker.kind not in (BATCH, GC_PAUSE, OPTIMIZER_MADE, POSITION)]
        seen.append([marker.kind for marker in found])
        assert '"dataset":"Batches"' in reader.name(found[0].value >> 16)  # of this ring, not the one before
        reader.close()
        late.withdraw()
    assert seen == [[*FETCH, BACKWARD_BEGIN, BACKWARD_END]] * 2


def test_without_torch_nothing_is_changed(rings, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert late.install_now(rings) == {"status": late.NO_TORCH}
    assert not runtime.on


def test_no_room_for_a_ring(tmp_path, rings):
    before = state()
    (tmp_path / "file").write_text("")
    answer = late.install_now([str(tmp_path / "file" / "rings")])
    assert answer["status"] == late.NO_RING and "Not a directory" in answer["reason"]
    assert same(before, state())
