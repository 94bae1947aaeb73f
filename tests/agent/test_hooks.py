"""The three boundaries: what is marked, what the user sees of it (nothing), and that it can be undone."""

import inspect
import sys
import traceback

import pytest

from tests.agent.programs import is_ours
from tuimon.agent import install
from tuimon.agent.loading import worker
from tuimon.agent.ring.layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    FETCH_BEGIN,
    FETCH_END,
    ITER_BEGIN,
    ITER_END,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
)
from tuimon.agent.ring.reader import RingReader
from tuimon.agent.torch_compat.tracebacks import HIDES_FRAMES

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, Dataset  # noqa: E402

BACKWARD = [BACKWARD_BEGIN, BACKWARD_END]
OPTIMIZER = [OPTIMIZER_BEGIN, OPTIMIZER_END]


def kinds(markers):
    return [kind for kind, _, _ in markers]


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.ones(3))


class Batches(Dataset):
    def __init__(self, length=4, bad=None, error=ValueError):
        self.length, self.bad, self.error = length, bad, error

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.bad:
            raise self.error("bad item")
        return torch.tensor([float(index)])


def test_a_step(recorded, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for batch in DataLoader(Batches(2)):
        (weight * batch).sum().backward()
        optimizer.step()
    step = [FETCH_BEGIN, FETCH_END, *BACKWARD, *OPTIMIZER]
    assert kinds(recorded) == [*step, *step, FETCH_BEGIN, FETCH_END]
    assert [flag for kind, _, flag in recorded if kind == FETCH_END] == [0, 0, 1]


def test_every_iterator_has_its_own_number(recorded):
    loader = DataLoader(Batches(1))
    for _ in range(3):
        iterator = iter(loader)
        next(iterator)
        del iterator  # the next may come to lie at the same address
    pairs = [(value, flag) for kind, value, flag in recorded if kind in (FETCH_BEGIN, FETCH_END)]
    numbers = [value for value, _ in pairs]
    assert numbers[0::2] == numbers[1::2] and len(set(numbers)) == 3 and 0 not in numbers


def test_workers(recorded):
    assert [float(b) for b in DataLoader(Batches(4), num_workers=1)] == [0, 1, 2, 3]
    assert kinds(recorded) == [ITER_BEGIN, ITER_END] + [FETCH_BEGIN, FETCH_END] * 5
    assert {value for _, value, _ in recorded[1:]} == {recorded[1][1]}


def test_workers_that_begin_anew(recorded):
    loader = DataLoader(Batches(1), num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert len(list(loader)) == 1
    assert kinds(recorded) == ([ITER_BEGIN, ITER_END] + [FETCH_BEGIN, FETCH_END] * 2) * 2
    assert len({value for kind, value, _ in recorded if kind != ITER_BEGIN}) == 1


@pytest.mark.skipif(not HIDES_FRAMES, reason="needs Python 3.11")
def test_workers_that_cannot_be_started(recorded, monkeypatch):
    def failing(process):
        raise OSError("no more processes")

    monkeypatch.setattr("multiprocessing.context.Process._Popen", staticmethod(failing))
    with pytest.raises(OSError, match="no more processes") as caught:
        iter(DataLoader(Batches(1), num_workers=1))
    assert not any(is_ours(entry.path) for entry in caught.traceback)
    assert recorded == [(ITER_BEGIN, 0, 0), (ITER_END, 0, 0)]


def test_an_error_in_the_dataset_is_the_users(recorded):
    with pytest.raises(ValueError, match="bad item") as caught:
        list(DataLoader(Batches(3, bad=1)))
    assert [flag for kind, _, flag in recorded if kind == FETCH_END] == [0, 2]
    assert caught.value.__context__ is None


@pytest.mark.skipif(not HIDES_FRAMES, reason="needs Python 3.11")
def test_tracebacks_are_plain_torchs(hooked, weight):
    def failing():
        for attempt in (lambda: list(DataLoader(Batches(3, bad=0))), weight.backward):
            try:
                attempt()
            except (ValueError, RuntimeError) as error:
                yield [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)]

    with_hooks = list(failing())
    install.uninstall()
    assert with_hooks == list(failing())


@pytest.mark.skipif(not HIDES_FRAMES, reason="needs Python 3.11")
def test_tracebacks_are_plain_torchs_where_batches_are_not_measured(hooked, weight, monkeypatch):
    monkeypatch.setattr(worker, "claim", lambda *_: None)  # no room for a slot
    with pytest.raises(ValueError, match="bad item") as caught:
        list(DataLoader(Batches(3, bad=0)))
    assert not any("tuimon" in entry.name for entry in caught.traceback)


def test_backward_and_both_kinds_of_grad(recorded, weight):
    (weight * 2).sum().backward()
    torch.autograd.backward((weight * 2).sum())
    torch.autograd.grad((weight * 2).sum(), weight)
    assert kinds(recorded) == BACKWARD * 3


def test_a_failing_backward_ends(recorded, weight):
    with pytest.raises(RuntimeError, match="scalar outputs"):
        (weight * 2).backward()
    loss = (weight * weight).sum()
    loss.backward()
    recorded.clear()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    assert kinds(recorded) == BACKWARD


def test_checkpointing_recomputes_inside_backward(recorded, weight):
    from torch.utils.checkpoint import checkpoint

    checkpoint(lambda w: (w * w).sum(), weight, use_reentrant=True).backward()
    assert kinds(recorded) == [BACKWARD_BEGIN, *BACKWARD, BACKWARD_END]


def test_steps_carry_their_optimizer(recorded, weight):
    first, second = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))

    def closure():
        raise FloatingPointError("nan")

    with pytest.raises(FloatingPointError):
        first.step(closure)
    second.step()
    first.step()
    assert recorded == [
        (OPTIMIZER_BEGIN, id(first), 0),  # no end: torch runs no post hook for a step that raises
        (OPTIMIZER_BEGIN, id(second), 0),
        (OPTIMIZER_END, id(second), 0),
        (OPTIMIZER_BEGIN, id(first), 0),
        (OPTIMIZER_END, id(first), 0),
    ]


def test_a_closures_backwards_lie_inside_the_step(recorded, weight):
    optimizer = torch.optim.LBFGS([weight], max_iter=3, line_search_fn=None)

    def closure():
        optimizer.zero_grad()
        loss = ((weight - 3) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert kinds(recorded)[0] == OPTIMIZER_BEGIN and kinds(recorded)[-1] == OPTIMIZER_END
    assert kinds(recorded).count(OPTIMIZER_END) == 1
    assert kinds(recorded).count(BACKWARD_BEGIN) >= 2


def test_a_scaler_that_skips_its_step_counts(recorded, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for factor in (1.0, float("inf")):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    taken = [OPTIMIZER_BEGIN, OPTIMIZER_BEGIN, OPTIMIZER_END, OPTIMIZER_END]
    assert kinds(recorded) == [*BACKWARD, *taken, *BACKWARD, *OPTIMIZER]


def test_wrapped_functions_look_like_the_originals(hooked):
    loader_class = torch.utils.data.dataloader._BaseDataLoaderIter
    found = [
        (loader_class.__next__, "__next__", "tuimon_fetch"),
        (torch.autograd._engine_run_backward, "_engine_run_backward", "tuimon_backward"),
        (torch.amp.GradScaler.step, "step", "tuimon_scaler_step"),
    ]
    for function, name, frame in found:
        assert function.__name__ == name
        assert function.__code__.co_name == frame
        assert function.__code__.co_filename.endswith("agent/hooks.py")
        original = inspect.unwrap(function)
        assert inspect.signature(function) == inspect.signature(original)
        assert function.__doc__ == original.__doc__ and function.__module__ == original.__module__


def test_undone_is_as_it_was(hooked):
    optimizer_module = sys.modules["torch.optim.optimizer"]  # torch.optim hides it

    def state():
        return (
            torch.utils.data.dataloader._BaseDataLoaderIter.__dict__["__next__"],
            torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__dict__["__init__"],
            torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__dict__["_reset"],
            torch.autograd._engine_run_backward,
            torch.autograd.graph._engine_run_backward,
            torch.amp.GradScaler.step,
            torch.cuda.nvtx._nvtx,
            len(optimizer_module._global_optimizer_pre_hooks),
            len(optimizer_module._global_optimizer_post_hooks),
        )

    before = state()
    install.uninstall()
    after = state()
    assert not any("tuimon" in repr(item) for item in after)
    assert all(item != plain for item, plain in zip(before, after, strict=True))
    install.uninstall()
    assert state() == after


def test_undoing_leaves_other_peoples_patches(hooked, weight):
    ours = torch.autograd._engine_run_backward

    def theirs(*args, **kwargs):
        return ours(*args, **kwargs)

    torch.autograd._engine_run_backward = theirs
    try:
        install.uninstall()
        assert torch.autograd._engine_run_backward is theirs
        (weight * 2).sum().backward()
        assert weight.grad is not None
    finally:
        torch.autograd._engine_run_backward = inspect.unwrap(ours)


def test_torchs_own_patching_of_the_engine_keeps_us(recorded, weight):
    """Export saves ``autograd.graph._engine_run_backward`` and puts it back into both modules."""
    patched = torch.autograd.graph._engine_run_backward
    assert patched is torch.autograd._engine_run_backward


def test_an_error_inside_a_hook_never_reaches_the_user(hooked, weight):
    iterator = iter(DataLoader(Batches(2)))
    iterator._tuimon_iterator = "no number"
    assert len(list(iterator)) == 2
    optimizer = torch.optim.SGD([weight], lr=0.1)
    (weight * 2).sum().backward()
    optimizer.step()
    reader = RingReader(hooked._writer.path)
    seen = [marker.kind for _ in range(RingReader.HOLE_READS) for marker in reader.read()]
    assert seen == [*BACKWARD, *OPTIMIZER]


def test_an_error_in_publishing_facts_never_reaches_the_user(hooked, monkeypatch, weight):
    from tuimon.agent.process import facts

    monkeypatch.setattr(facts, "late_facts", lambda optimizer: {"rank": object})
    monkeypatch.setattr(hooked._writer, "set_meta", lambda meta: 1 / 0)
    hooked.facts_due = True
    (weight * 2).sum().backward()
    assert not hooked.facts_due and hooked.on


def test_an_interrupt_in_a_hook_is_the_users(hooked, monkeypatch, weight):
    def interrupted(kind, value=0, flag=0):
        raise KeyboardInterrupt

    monkeypatch.setattr(hooked, "emit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        (weight * 2).sum().backward()


def test_iterators_that_refuse_attributes_still_work(recorded):
    class Refusing(torch.utils.data.dataloader._SingleProcessDataLoaderIter):
        def __setattr__(self, name, value):
            if name.startswith("_tuimon"):
                raise AttributeError(name)
            super().__setattr__(name, value)

    assert len(list(Refusing(DataLoader(Batches(3))))) == 3
    assert {value for _, value, _ in recorded} == {0}


def test_nothing_of_a_batch_is_kept(hooked):
    import gc
    import weakref

    iterator = iter(DataLoader(Batches(2)))
    batch = next(iterator)
    seen = weakref.ref(batch)
    del batch
    gc.collect()
    assert seen() is None


def test_nothing_of_an_abandoned_step_is_kept(hooked, weight):
    import gc
    import weakref

    class Held:
        pass

    held = Held()
    seen = weakref.ref(held)

    def closure(held=held):
        raise FloatingPointError

    optimizer = torch.optim.SGD([weight], lr=0.1)
    with pytest.raises(FloatingPointError):
        optimizer.step(closure)
    del held, closure
    gc.collect()
    assert seen() is None
