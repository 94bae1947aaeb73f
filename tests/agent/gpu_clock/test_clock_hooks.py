"""What the GPU clock's hooks time, step by step."""

import inspect
import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.agent.gpu_clock.fake_gpu import STEP, FakeGpu
from tuimon.agent import cuda as cuda_events
from tuimon.agent import gpu_clock, install
from tuimon.agent.gpu_clock import IN_STEP, NESTED, STEP_BEGINS, GpuClock, StepFollower
from tuimon.agent.importlib_bootstrap import hooks
from tuimon.agent.ring import layout

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def timed(hooked, recorded, monkeypatch):
    """The hooks with a clock on a fake GPU, every step timed; gives what they emit."""
    gpu = FakeGpu(cost_ns=1000)
    monkeypatch.setattr(gpu_clock.TokenBucket, "is_paid", True)
    monkeypatch.setattr(hooked, "clock", GpuClock(gpu, hooked.emit_current, lambda: gpu.now_ns))
    return recorded


def flags(markers, *kinds):
    return [flag for kind, _, flag in markers if kind in kinds]


def test_boundaries_are_numbered_and_their_times_reported(timed, weight):
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for batch in torch.utils.data.DataLoader(torch.arange(6.0)):
        (weight * batch).sum().backward()
        optimizer.step()
    numbers = flags(timed, *STEP)
    first = numbers.index(layout.FIRST_EVENT)
    assert numbers[first:] == [*range(layout.FIRST_EVENT, layout.FIRST_EVENT + len(numbers) - first - 1), 1]
    assert len(numbers) - first >= 4 * 5
    done = flags(timed, layout.GPU_TIME)
    assert done == sorted(done) and set(done) <= set(numbers)


def test_only_batches_get_numbers(timed, weight):
    for _ in range(3):
        (weight * 2).sum().backward()
    for _ in range(2):
        list(torch.utils.data.DataLoader(torch.arange(2.0)))
    with pytest.raises(IndexError):
        list(torch.utils.data.DataLoader(torch.ones(2), sampler=[9]))
    ends = flags(timed, layout.FETCH_END)
    assert [flag if flag < layout.FIRST_EVENT else "batch" for flag in ends] == ["batch", "batch", 1] * 2 + [2]


@pytest.mark.parametrize("paused", [False, True])
def test_undone_it_is_off(timed, hooked, paused):
    timing = hooked.clock
    if paused:
        hooked.pause_clock(3)
    install.uninstall()
    assert hooked.clock is None and not timing.on and not hooked.paused_backwards


def test_a_paused_clock_resumes_after_so_many_backwards(timed, hooked, weight):
    clock = hooked.clock
    hooked.pause_clock(3)
    for _ in range(2):
        (weight * 2).sum().backward()
        assert hooked.clock is None
    assert not any(flags(timed, layout.BACKWARD_BEGIN, layout.BACKWARD_END))
    (weight * 2).sum().backward()
    assert hooked.clock is clock and hooked.paused_backwards == 0
    for _ in range(3):
        (weight * 2).sum().backward()
    assert any(flags(timed, layout.BACKWARD_BEGIN, layout.BACKWARD_END))


@pytest.fixture
def without_cuda(hooked, monkeypatch):
    """The hooks in a torch that is built for the CPU, whatever build this one is."""
    install.uninstall()
    monkeypatch.delattr(torch._C, "_cuda_getDevice", raising=False)
    hooked.start(torch)
    return hooked


def test_without_cuda_there_is_none(without_cuda):
    assert without_cuda.clock is None and not without_cuda.clock_due
    assert "tuimon" not in torch.cuda.CUDAGraph.capture_begin.__code__.co_name


def test_a_torch_with_cuda_is_waited_for(hooked, monkeypatch, tmp_path):
    install.uninstall()
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1 / 0, raising=False)
    hooked.start(torch)
    assert hooked.clock_due
    install.uninstall()
    monkeypatch.setenv("TUIMON_GPU_EVENTS", "0")
    hooked.start(torch)
    assert hooked.on and not hooked.clock_due


def test_the_clock_starts_when_cuda_has(hooked, monkeypatch, weight):
    gpu, initialized = FakeGpu(), []
    monkeypatch.setattr(cuda_events, "CudaDevice", lambda *_: gpu)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(initialized))
    monkeypatch.setattr(hooked, "clock_due", True)
    for _ in range(3):
        (weight * 2).sum().backward()
    assert hooked.clock is None and not gpu.calls
    initialized.append(True)
    for _ in range(3):
        (weight * 2).sum().backward()
    assert isinstance(hooked.clock, GpuClock) and hooked.clock.on
    assert "record" in gpu.calls


def test_a_torch_that_lacks_what_is_needed_has_no_clock(hooked, monkeypatch):
    def device(torch, any_capture):
        return torch._C._cuda_nothing_of_this_name

    monkeypatch.setattr(hooked, "clock_due", True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(cuda_events, "CudaDevice", device)
    hooked.start_clock()
    assert hooked.clock is None and hooked.on and not hooked.clock_due


@pytest.mark.parametrize("module, name", [("torch.cuda.graphs", "CUDAGraph"), ("torch.accelerator.graphs", "Graph")])
def test_captures_are_followed_and_that_is_undone(without_cuda, monkeypatch, module, name):
    graphs = pytest.importorskip(module)
    graph_class = getattr(graphs, name)
    plain = graph_class.__dict__["capture_begin"], graph_class.__dict__["capture_end"]
    monkeypatch.setattr(without_cuda, "clock_due", True)
    hooks.hook_captures(graphs)
    ours = graph_class.capture_begin, graph_class.capture_end
    assert [function.__code__.co_name for function in ours] == ["tuimon_capture_begin", "tuimon_capture_end"]
    for function, original in zip(ours, plain, strict=True):
        assert inspect.signature(function) == inspect.signature(original)
        assert function.__doc__ == original.__doc__
    cuda_events.open_captures.add(1)
    install.uninstall()
    assert (graph_class.__dict__["capture_begin"], graph_class.__dict__["capture_end"]) == plain
    assert not cuda_events.any_capture()


@pytest.mark.parametrize("paused", [False, True])
def test_a_forked_child_has_none(hooked, monkeypatch, paused):
    closed = []
    clock = SimpleNamespace(close=lambda: closed.append(os.getpid()))
    monkeypatch.setattr(hooked, "clock", clock)
    if paused:
        hooked.pause_clock(5)
    child = os.fork()
    if not child:
        has_none = hooked.clock is None and not hooked.paused_backwards and closed == [os.getpid()]
        os._exit(0 if has_none else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert closed == [] and clock in (hooked.clock, hooked.paused_clock)


BACKWARD = ((layout.BACKWARD_BEGIN, 0), (layout.BACKWARD_END, 0))
NESTED_BACKWARD = (BACKWARD[0], *BACKWARD, BACKWARD[1])
FETCH = ((layout.FETCH_END, 0),)


def step(key=1, *inside):
    return ((layout.OPTIMIZER_BEGIN, key), *inside, (layout.OPTIMIZER_END, key))


#: name -> the boundaries of one step, and which of them begins it
LOOPS = {
    "a DataLoader": ((*FETCH, *BACKWARD, *step()), 0),
    "no DataLoader": ((*BACKWARD, *step()), 0),
    "no optimizer": ((*FETCH, *BACKWARD), 0),
    "no optimizer, no DataLoader": (BACKWARD, 0),
    "accumulation": ((*FETCH, *BACKWARD, *FETCH, *BACKWARD, *step()), 0),
    "one optimizer per parameter": ((*FETCH, *BACKWARD, *step(1), *step(2), *step(3)), 0),
    "a scaler": ((*FETCH, *BACKWARD, *step(1, *step(2))), 0),
    "a scaler that skips": ((*FETCH, *BACKWARD, *step(1)), 0),
    "checkpointing": ((*FETCH, *NESTED_BACKWARD, *step()), 0),
    "a closure": (step(1, *BACKWARD, *BACKWARD), 1),
    "a closure after a fetch": ((*FETCH, *step(1, *BACKWARD)), 0),
    "a penalty": ((*FETCH, *BACKWARD, *BACKWARD, *step()), 0),
    "optimizers within the backward": ((*FETCH, BACKWARD[0], *step(1), *step(2), BACKWARD[1]), 0),
}


@pytest.fixture
def follower():
    return StepFollower(lambda: 0)


def places(follower, boundaries, count):
    """The place of each boundary in so many steps."""
    return [[follower.place(kind, key) for kind, key in boundaries] for _ in range(count)]


@pytest.mark.parametrize("name", LOOPS)
def test_where_steps_begin(follower, name):
    boundaries, first = LOOPS[name]
    begins = [
        [place for place, what in enumerate(found) if what == STEP_BEGINS] for found in places(follower, boundaries, 60)
    ]
    assert begins[3:] == [[first]] * 57  # by then it is known whether there are optimizers


@pytest.mark.parametrize("name", LOOPS)
def test_begins_and_ends_that_count_come_in_pairs(follower, name):
    boundaries, first = LOOPS[name]
    found = places(follower, boundaries, 12)
    kinds = [kind for kind, _ in boundaries]
    counted = [kind for kind, what in zip(kinds, found[-1], strict=True) if what != NESTED]
    assert kinds[first] in counted
    for begin in (layout.BACKWARD_BEGIN, layout.OPTIMIZER_BEGIN):
        depth = 0
        for kind in counted:
            depth += (kind == begin) - (kind == begin + 1)
            assert depth in (0, 1)
        assert depth == 0


def test_boundaries_of_other_threads(follower):
    boundaries, _ = LOOPS["a DataLoader"]
    places(follower, boundaries, 2)
    with ThreadPoolExecutor(1) as other:
        assert {other.submit(follower.place, *boundary).result() for boundary in boundaries} == {NESTED}
    assert follower.place(layout.FETCH_END, 0) == STEP_BEGINS
    with ThreadPoolExecutor(1) as other:
        other.submit(follower.place, layout.OPTIMIZER_END, 1).result()
    assert follower.place(layout.FETCH_END, 0) == IN_STEP


@pytest.mark.parametrize("name", LOOPS)
def test_what_ends_in_a_pause_is_not_open_after_it(follower, name):
    """The clock pauses at the beginning of a step, and goes on at the beginning of a backward."""
    boundaries, first = LOOPS[name]
    places(follower, boundaries, 6)
    places(follower, boundaries[: first + 1], 1)
    follower.forget_open()
    again = [kind for kind, _ in boundaries].index(layout.BACKWARD_BEGIN)
    places(follower, boundaries[again:], 1)
    assert STEP_BEGINS in places(follower, boundaries, 1)[0]


@pytest.mark.parametrize("fetch", [True, False])
def test_an_optimizer_that_raised_is_forgotten(follower, fetch):
    boundaries, _ = LOOPS["a DataLoader" if fetch else "no DataLoader"]
    places(follower, boundaries, 2)
    follower.place(layout.OPTIMIZER_BEGIN, 7)
    assert follower.place(*boundaries[0]) == STEP_BEGINS
    assert [follower.place(*b) for b in boundaries[1:]] == [IN_STEP] * (len(boundaries) - 1)
