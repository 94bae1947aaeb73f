"""The GPU clock on a real GPU: no synchronisation, no other result, no broken capture, and times that are true."""

import contextlib
import statistics
import sys
import threading
import time
from itertools import pairwise

import pytest

from tests.agent.programs import environment, printed_json, python
from tuimon.agent.ring.layout import (
    BACKWARD_BEGIN,
    GPU_TIME,
    MEMORY_ALLOCATED,
    MEMORY_FREES,
    MEMORY_PEAK,
    MEMORY_PINNED,
    TORCH_MEMORY,
    unpack_gpu_time,
)

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::UserWarning")]

#: Of CPU time for the GPU clock in a step of the loop, on average: of the thread, because a record may wait.
MAX_US = 15.0


@pytest.fixture
def gpu():
    """torch, on a machine with a GPU."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip(f"no CUDA GPU for torch {torch.__version__}")
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    return torch


class Clocked:
    """The hooks of this process, and what they wrote."""

    def __init__(self, runtime):
        from tuimon.agent.ring.reader import RingReader

        self.runtime = runtime
        self.hole_reads = RingReader.HOLE_READS
        self.reader = RingReader(runtime.writer().path)

    @property
    def clock(self):
        """The GPU clock, which may pause; None before the first boundary."""
        from tuimon.agent.gpu_clock import GpuClock

        clock = self.runtime.clock or self.runtime.paused_clock
        return clock if isinstance(clock, GpuClock) else None

    def markers(self, *kinds):
        """Of these kinds, since the last time."""
        self.runtime.writer().flush()
        read = [marker for _ in range(self.hole_reads) for marker in self.reader.read()]
        return [marker for marker in read if not kinds or marker.kind in kinds]

    def is_well(self):
        """The clock is on and has reported events."""
        kinds = {marker.kind for marker in self.markers()}
        return self.clock is not None and self.clock.on and {GPU_TIME, TORCH_MEMORY} <= kinds


@pytest.fixture
def clocked(gpu, monkeypatch, tmp_path):
    """Hooks installed as ``tuimon run`` does it, in this process; undone at the end."""
    from tuimon.agent import install

    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    install.uninstall()
    install.install(gpu, lambda name, then: then(sys.modules[name]) if name in sys.modules else None)
    yield Clocked(install.runtime)
    install.uninstall()
    gpu.cuda.synchronize()


@pytest.fixture
def every_step(monkeypatch):
    """Every step of the loop is timed, whatever it costs."""
    from tuimon.agent.steps import TokenBucket

    monkeypatch.setattr(TokenBucket, "is_paid", True)


class Training:
    """Steps of a small MLP on the GPU, none of which synchronises."""

    def __init__(self, torch, width=128, layers=8, **options):
        torch.manual_seed(1)
        blocks = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(layers)]
        self.torch = torch
        self.model = torch.nn.Sequential(*blocks).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, **options)
        self.inputs = torch.randn(64, width, device="cuda")

    def loss(self):
        return self.model(self.inputs).square().mean()

    def step(self):
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def steps(self, count):
        for _ in range(count):
            self.step()
        return self

    def weights(self):
        self.torch.cuda.synchronize()
        return [parameter.detach().cpu() for parameter in self.model.parameters()]

    def settle(self):
        """Let all recorded events be done and reported."""
        self.torch.cuda.synchronize()
        return self.steps(20)


@contextlib.contextmanager
def forbidden_syncs(torch):
    """Every synchronising call of torch raises."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def same(torch, ours, plain):
    return all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


def test_nothing_synchronises(gpu, clocked, every_step):
    training = Training(gpu).steps(5)
    gpu.cuda.synchronize()
    with forbidden_syncs(gpu):
        training.steps(50)
        with pytest.raises(RuntimeError, match="synchroniz"):
            training.inputs[0, 0].item()  # it would have been seen
    training.settle()
    assert clocked.is_well()


def test_it_costs_little(gpu, clocked):
    training = Training(gpu, layers=12).steps(50)
    clock, spent_ns = clocked.clock, [0]

    def timed(function):
        def call(*arguments):
            begun_ns = time.thread_time_ns()
            result = function(*arguments)
            spent_ns[0] += time.thread_time_ns() - begun_ns
            return result

        return call

    for name in ("event_number", "record_event"):
        setattr(clock, name, timed(getattr(clock, name)))
    count = 3000
    training.steps(count)
    gpu.cuda.synchronize()
    assert clock.on
    assert spent_ns[0] / count / 1000 <= MAX_US


def test_times_are_true(gpu, clocked, every_step):
    """Steps of long kernels: a step takes as long on the GPU clock as by the test's own events."""
    training = Training(gpu)

    def step():
        gpu.cuda._sleep(4_000_000)
        training.step()

    for _ in range(10):
        step()
    gpu.cuda.synchronize()
    clocked.markers()
    begin, end = (gpu.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(60):
        step()
    end.record()
    gpu.cuda.synchronize()
    step_ms = begin.elapsed_time(end) / 60
    training.settle()
    markers = clocked.markers()
    begins = [marker.flag for marker in markers if marker.kind == BACKWARD_BEGIN and marker.flag]
    at_ns = {m.flag: unpack_gpu_time(m.value).elapsed_ns for m in markers if m.kind == GPU_TIME}
    known = [at_ns[number] for number in begins[:60] if number in at_ns]
    steps_ms = [(after - before) / 1e6 for before, after in pairwise(known)]
    assert len(steps_ms) >= 40
    assert statistics.median(steps_ms) == pytest.approx(step_ms, rel=0.05)


def test_memory_is_torchs(gpu, clocked):
    Training(gpu).steps(3)
    memory = {m.flag & 0xF: m.value for m in clocked.markers(TORCH_MEMORY)}
    assert 0 < memory[MEMORY_ALLOCATED] <= memory[MEMORY_PEAK] <= gpu.cuda.max_memory_allocated()
    older = {MEMORY_PINNED} if not hasattr(gpu._C, "_cuda_hostMemoryStats") else set()  # torch before 2.6
    older |= {MEMORY_FREES} if "num_device_free" not in gpu.cuda.memory_stats() else set()
    assert set(memory) == {*range(7)} - older


def test_a_whole_step_is_captured(gpu, clocked, every_step):
    """As torch's documentation does it: warm up on a side stream, capture, replay."""
    training = Training(gpu).steps(3)
    side = gpu.cuda.Stream()
    side.wait_stream(gpu.cuda.current_stream())
    with gpu.cuda.stream(side):
        training.steps(3)
    gpu.cuda.current_stream().wait_stream(side)
    graph = gpu.cuda.CUDAGraph()
    training.optimizer.zero_grad(set_to_none=True)
    with gpu.cuda.graph(graph):
        loss = training.loss()
        loss.backward()
        training.optimizer.step()
    before = training.weights()
    graph.replay()
    assert not same(gpu, training.weights(), before)
    training.settle()
    assert clocked.is_well()


def test_a_capture_in_another_thread_holds(gpu, clocked, every_step):
    """Boundaries of a training go on while another thread captures in the mode that any query would break.

    This training's own kernels are on the CPU: all that touches the GPU in its thread is the GPU clock.
    """
    weight = gpu.nn.Parameter(gpu.ones(3))
    inputs = gpu.ones(256, device="cuda")
    failed, captured = [], []

    def step():
        (weight * 2).sum().backward()

    def capture():
        try:
            for _ in range(30):
                graph = gpu.cuda.CUDAGraph()
                with gpu.cuda.graph(graph):
                    result = inputs
                    for _ in range(500):
                        result = result + 1
                graph.replay()
                gpu.cuda.synchronize()
                captured.append(float(result[0]))
        except Exception as error:  # noqa: BLE001  (whatever it is, the test's own thread reports it)
            failed.append(error)

    for _ in range(5):
        step()
    thread = threading.Thread(target=capture)
    thread.start()
    while thread.is_alive():
        step()
    thread.join()
    assert not failed
    assert captured == [501.0] * 30
    gpu.cuda.synchronize()
    for _ in range(20):
        step()
    assert clocked.is_well()


def test_compiled_with_graphs(gpu, clocked, every_step):
    pytest.importorskip("triton")
    eager, compiled = Training(gpu), Training(gpu)
    compiled.model = gpu.compile(compiled.model, mode="reduce-overhead")
    eager.steps(12)
    compiled.steps(12)
    for ours, plain in zip(compiled.weights(), eager.weights(), strict=True):
        gpu.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-4)
    compiled.settle()
    assert clocked.is_well()


def on_one_stream(torch):
    return Training(torch).steps(50)


def on_side_streams(torch):
    training = Training(torch)
    side = torch.cuda.Stream()
    for number in range(40):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side if number % 10 > 6 else torch.cuda.current_stream()):
            training.step()
        torch.cuda.current_stream().wait_stream(side)
    return training.settle()


@pytest.mark.parametrize("train", [on_one_stream, on_side_streams])
def test_weights_are_the_same(gpu, clocked, every_step, train):
    from tuimon.agent import install

    ours = train(gpu).weights()
    assert clocked.is_well()
    install.uninstall()
    assert same(gpu, ours, train(gpu).weights())


def test_mixed_precision_with_a_scaler(gpu, clocked, every_step):
    training = Training(gpu)
    scaler = gpu.amp.GradScaler("cuda", init_scale=2.0**40)  # the first steps are skipped
    for _ in range(40):
        training.optimizer.zero_grad()
        with gpu.autocast("cuda", dtype=gpu.float16):
            loss = training.loss()
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()
    assert scaler.get_scale() < 2.0**40
    assert all(gpu.isfinite(weight).all() for weight in training.weights())
    training.settle()
    assert clocked.is_well()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(gpu, clocked, every_step, reentrant):
    from torch.utils.checkpoint import checkpoint

    training = Training(gpu)
    training.inputs.requires_grad_()
    for _ in range(20):
        training.optimizer.zero_grad()
        checkpoint(training.model, training.inputs, use_reentrant=reentrant).square().mean().backward()
        training.optimizer.step()
    training.settle()
    assert clocked.is_well()


def test_captures_are_let_alone_when_undone(gpu, clocked):
    from tuimon.agent import install

    assert gpu.cuda.CUDAGraph.capture_begin.__code__.co_name == "tuimon_capture_begin"
    install.uninstall()
    assert gpu.cuda.CUDAGraph.capture_begin.__code__.co_name == "capture_begin"


ON_CPU = """
import json, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(50):
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
print(json.dumps([torch.cuda.is_available(), torch.cuda.is_initialized()]))
"""

FORKED = """
import json, os, torch
device = torch.device("cuda")
def train(device):
    model = torch.nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(50):
        model(torch.randn(3, 4, device=device)).sum().backward()
        optimizer.step()
    return bool(torch.isfinite(model.weight).all())
train(device)
child = os.fork()
if not child:
    list(torch.utils.data.DataLoader(torch.ones(4)))
    os._exit(0)
status = os.waitpid(child, 0)[1]
print(json.dumps([status, train(device)]))
"""


def test_a_training_on_the_cpu_leaves_cuda_alone(gpu, tmp_path):
    assert printed_json(python("-c", ON_CPU, env=environment(tmp_path / "rings"))) == [True, False]


def test_a_forked_child_leaves_it_to_its_parent(gpu, tmp_path):
    assert printed_json(python("-c", FORKED, env=environment(tmp_path / "rings"))) == [0, True]
