"""What the user sees of the hooks: nothing, and they can be undone."""

import functools
import gc
import importlib
import inspect
import traceback
import types
import weakref

import pytest

from tests.agent.batches import Batches
from tuimon.agent import install
from tuimon.agent.loading import batches, loader_facts, worker
from tuimon.agent.outside import HIDES_FRAMES
from tuimon.agent.process import training_facts
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import RingReader

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

pytestmark = pytest.mark.trust

BACKWARD = [layout.BACKWARD_BEGIN, layout.BACKWARD_END]
OPTIMIZER = [layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END]


def test_an_error_in_the_dataset_is_the_users(recorded):
    with pytest.raises(ValueError, match="bad item") as caught:
        list(DataLoader(Batches(3, bad=1)))
    assert [flag for kind, _, flag in recorded if kind == layout.FETCH_END] == [0, 2]
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
    monkeypatch.setattr(worker, "claim_slot", lambda *_: None)  # no room for a slot
    with pytest.raises(ValueError, match="bad item") as caught:
        list(DataLoader(Batches(3, bad=0)))
    assert not any("tuimon" in entry.name for entry in caught.traceback)


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
        assert function.__code__.co_filename.endswith("agent/importlib_bootstrap/hooks.py")
        original = inspect.unwrap(function)
        assert inspect.signature(function) == inspect.signature(original)
        assert function.__doc__ == original.__doc__ and function.__module__ == original.__module__


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


def test_an_error_inside_a_hook_never_reaches_the_user(hooked, monkeypatch, weight):
    made = []
    monkeypatch.setattr(training_facts, "any_made", lambda: bool(made))  # whatever other tests have made
    iterator = iter(DataLoader(Batches(2)))
    loader_facts.numbers[id(iterator)] = "no number"
    assert len(list(iterator)) == 2
    optimizer = torch.optim.SGD([weight], lr=0.1)
    made.append(optimizer)
    (weight * 2).sum().backward()
    optimizer.step()
    reader = RingReader(hooked.writer().path)
    seen = [marker.kind for _ in range(RingReader.HOLE_READS) for marker in reader.read()]
    assert seen == [*BACKWARD, layout.OPTIMIZER_MADE, *OPTIMIZER]


#: Modules that hooks call now and then, and the functions in them that the hooks themselves call.
SELDOM = (
    "debug_settings",
    *("loading.batches", "loading.loader_facts", "loading.worker"),
    *("process.facts", "process.loop_stacks", "process.training_facts"),
    *("ring.loading_slots", "ring.writer", "ring.files"),
    *("torch_compat.compilations", "torch_compat.unobserved"),
)
CALLED_BY_HOOKS = {"ready_batches", "end_fetch", "report"}


def seldom_called():
    for name in SELDOM:
        module = importlib.import_module("tuimon.agent." + name)
        for function, value in vars(module).items():
            ours = isinstance(value, types.FunctionType) and value.__module__ == module.__name__
            if ours and function not in CALLED_BY_HOOKS:
                yield pytest.param(module, function, id=f"{name}.{function}")


@pytest.mark.parametrize(("module", "function"), seldom_called())
def test_whatever_fails_below_a_hook_the_training_goes_on(hooked, monkeypatch, weight, module, function):
    """Each function of the agent fails, and again and again, as with another torch."""
    loader = DataLoader(Batches(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with monkeypatch.context() as patched:
        patched.setattr(module, function, functools.partial(int, "no number"))
        hooked.facts_due = True
        for _ in loader:
            (weight * 2).sum().backward()
            optimizer.step()
            batches.due_ns = 0
    assert hooked.on


def test_an_interrupt_in_a_hook_is_the_users(hooked, weight):
    def interrupted(kind, value=0, flag=0):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(hooked, "emit", interrupted)
        (weight * 2).sum().backward()


def test_nothing_of_a_batch_is_kept(hooked):
    iterator = iter(DataLoader(Batches(2)))
    batch = next(iterator)
    seen = weakref.ref(batch)
    del batch
    gc.collect()
    assert seen() is None
