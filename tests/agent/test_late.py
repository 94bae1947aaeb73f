"""The agent in a training that runs already: installed late, withdrawn, and nothing left of it."""

import gc
import os
import sys
import threading

import pytest

from tests.agent.batches import Batches
from tuimon.agent import install, runtime, watch
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.torch_compat import rebinding

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

pytestmark = pytest.mark.trust


@pytest.fixture
def rings(tmp_path):
    """Folders for rings, and a process without hooks, before and after."""
    install.uninstall()
    yield [str(tmp_path / "rings")]
    install.uninstall()


FETCH = [layout.FETCH_BEGIN, layout.FETCH_END]
UPDATE = [layout.BACKWARD_BEGIN, layout.BACKWARD_END, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END]


def markers():
    """Kind and name of the markers in this process's ring."""
    reader = RingReader(runtime.writer().path)
    try:
        read = [marker for _ in range(RingReader.HOLE_READS) for marker in reader.read()]
        found = [marker for marker in read if marker.kind not in layout.NO_LOOP_KINDS]
        return [marker.kind for marker in found], reader.name(found[0].value >> 16)
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
    hooks = *optimizer._global_optimizer_pre_hooks.items(), *optimizer._global_optimizer_post_hooks.items()
    return found | {"hooks": hooks, "gc": tuple(gc.callbacks), "meta_path": tuple(sys.meta_path)}


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
    assert watch.install_now(rings) == {"status": watch.INSTALLED}
    for _ in range(2):
        train(next(batches))
    seen, _ = markers()
    assert [kind for kind in seen if kind not in (layout.RANGE_PUSH, layout.RANGE_POP)] == [*FETCH, *UPDATE] * 2


def test_a_second_attach_finds_the_agent(rings):
    assert watch.install_now(rings)["status"] == watch.INSTALLED
    ring, hooked = runtime.writer(), state()
    assert watch.install_now(rings) == {"status": watch.PRESENT}
    assert runtime.writer() is ring and hooked == state()


@pytest.mark.parametrize("workers", [0, 1])
def test_withdrawn_is_as_it_was(rings, weight, workers):
    optimizer, batches = torch.optim.SGD([weight], lr=0.1), iter(DataLoader(Batches(8), num_workers=workers))
    next(batches)
    before, iterator = state(), dict(vars(batches))
    watch.install_now(rings)
    assert before != state()
    for _ in range(2):
        (weight * next(batches)).sum().backward()
        optimizer.step()
    assert vars(batches).keys() == iterator.keys()
    install.uninstall()
    assert before == state()
    assert vars(batches).keys() == iterator.keys()
    assert len([1 for _ in batches]) == 5


def test_the_ring_goes_with_the_hooks(rings, weight):
    watch.install_now(rings)
    (weight * 2).sum().backward()
    path = runtime.writer().path
    numbers = os.listdir("/proc/self/fd")
    opened = [os.readlink(f"/proc/self/fd/{n}") for n in numbers if os.path.lexists(f"/proc/self/fd/{n}")]
    assert path in mapped() and path not in opened
    install.uninstall()
    gc.collect()
    assert path not in mapped()
    assert not os.path.exists(path)


def mapped():
    """The files that this process has mapped, as one text."""
    with open("/proc/self/maps") as maps:
        return maps.read()


def test_again_after_a_withdrawal(rings, weight):
    batches = iter(DataLoader(Batches(6)))
    seen = []
    for _ in range(2):
        assert watch.install_now(rings)["status"] == watch.INSTALLED
        (weight * next(batches)).sum().backward()
        kinds, first = markers()
        seen.append(kinds)
        assert '"dataset":"Batches"' in first  # of this ring, not the one before
        install.uninstall()
    assert seen == [[*FETCH, layout.BACKWARD_BEGIN, layout.BACKWARD_END]] * 2


def test_without_torch_nothing_is_changed(rings, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert watch.install_now(rings) == {"status": watch.NO_TORCH}
    assert not runtime.on


def test_no_room_for_a_ring(tmp_path, rings):
    before = state()
    (tmp_path / "file").write_text("")
    answer = watch.install_now([str(tmp_path / "file" / "rings")])
    assert answer["status"] == watch.NO_RING and "Not a directory" in answer["reason"]
    assert before == state()


def trained(place, action):
    """Weights after eight steps, ``action`` called once at a place of one of them; and the user's own hook's calls."""
    calls, due = [], [True]

    def at(here):
        if here == place and due and len(calls) >= 2:
            due.pop()
            action()

    def collate(items):
        at("fetch")
        return items[0]

    def after(*_):
        calls.append(1)
        at("after the step")

    weight, module = torch.nn.Parameter(torch.ones(3)), sys.modules["torch.optim.optimizer"]  # torch.optim hides it
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    handles = [
        module.register_optimizer_step_pre_hook(lambda *_: at("before the step")),
        module.register_optimizer_step_post_hook(after),
        module.register_optimizer_step_pre_hook(lambda *_: None),
        module.register_optimizer_step_post_hook(lambda *_: None),
    ]
    try:
        for batch in DataLoader(Batches(8), collate_fn=collate):
            optimizer.zero_grad()
            loss = (weight * batch).sum()
            loss.register_hook(lambda _: at("backward"))
            loss.backward()
            optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    assert not due
    return weight.tolist(), len(calls)


PLACES = ("fetch", "backward", "before the step", "after the step")


@pytest.mark.parametrize("place", PLACES)
def test_withdrawn_in_the_midst_of_a_step(rings, place):
    """Also where torch is going through its step hooks, of which some are the user's."""
    expected = trained(place, lambda: None)
    watch.install_now(rings)
    assert trained(place, install.uninstall) == expected
    assert not runtime.on


@pytest.mark.parametrize("place", PLACES)
def test_installed_in_the_midst_of_a_step(rings, place):
    answers = []
    expected = trained(place, lambda: None)
    assert trained(place, lambda: answers.append(watch.install_now(rings)["status"])) == expected
    assert answers == [watch.RETRY if "step" in place else watch.INSTALLED]


def test_a_hook_that_was_removed_in_a_step_beside_anothers_is_not_called():
    called, optimizer = [], sys.modules["torch.optim.optimizer"]
    rebinding.add_step_hooks(optimizer, lambda *_: None, lambda *_: called.append("end"))
    handle = optimizer.register_optimizer_step_post_hook(lambda *_: None)
    sgd = torch.optim.SGD([torch.zeros(1)])
    sgd.step(lambda: (rebinding.undo_all(), 0.0)[1])
    sgd.step()
    assert called == []
    handle.remove()
    rebinding.sweep()
    assert not optimizer._global_optimizer_post_hooks


def test_with_no_hooks_but_ours_a_step_is_no_hindrance(rings, weight):
    """LBFGS and Lightning compute inside the optimizer's step."""
    optimizer, seen = torch.optim.LBFGS([weight], max_iter=3), []

    def closure():
        seen.append((rebinding.must_wait(), watch.install_now(rings)["status"]))
        optimizer.zero_grad()
        loss = weight.pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert seen[0] == (False, watch.INSTALLED)
    optimizer.step(lambda: (install.uninstall(), closure())[1] if runtime.on else closure())


def test_from_another_thread_while_it_trains(rings):
    """Installed and withdrawn again and again beside a loop: the weights come out as without."""

    def train(steps):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        done = 0
        while done < steps:
            for batch in DataLoader(Batches(7)):
                optimizer.zero_grad()
                model(torch.full((2, 4), float(batch))).pow(2).sum().backward()
                optimizer.step()
                done += 1
        return [parameter.detach().clone() for parameter in model.parameters()]

    expected, statuses, over = train(700), [], threading.Event()

    def toggle():
        while not over.is_set():
            statuses.append(watch.install_now(rings)["status"])
            install.uninstall()

    thread = threading.Thread(target=toggle)
    thread.start()
    try:
        got = train(700)
    finally:
        over.set()
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert set(statuses) == {watch.INSTALLED}


def test_compiled_code_is_not_compiled_anew(rings):
    """Nor for a compiled optimizer, which looks at torch's step hooks when it is compiled."""
    from torch._dynamo.testing import CompileCounter

    counter, model = CompileCounter(), torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    forward, step = torch.compile(model, backend=counter), torch.compile(optimizer.step, backend=counter)
    compiled = []
    for change in (lambda: None, lambda: watch.install_now(rings), install.uninstall):
        change()
        for _ in range(3):
            optimizer.zero_grad()
            forward(torch.ones(2, 4)).sum().backward()
            step()
        compiled.append(counter.frame_count)
    assert compiled[0] > 0 and compiled == [compiled[0]] * 3
