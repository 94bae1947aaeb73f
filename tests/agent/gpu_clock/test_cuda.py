"""CUDA through torch, on a torch that has only the names which are used; and the GPU clock before CUDA is."""

import threading
from types import SimpleNamespace

import pytest

from tests.agent.gpu_clock.fake_gpu import MS, SECOND, STEP, FakeGpu, FakeLoop, FakeStream
from tuimon.agent import cuda as cuda_events
from tuimon.agent import gpu_clock
from tuimon.agent.cuda import CudaDevice
from tuimon.agent.ring import layout


class Stream:
    def __init__(self, stream_id, device_index, device_type):
        self.key = (stream_id, device_index, device_type)

    def query(self):
        return self.key[0] != 7


class Event:
    def __init__(self, enable_timing=False):
        self.timed = enable_timing
        self.recorded = None

    def record(self, stream):
        self.recorded = stream

    def query(self):
        return self.recorded is not None

    def elapsed_time(self, other):
        return 1.5


class Cuda:
    """Two devices; ``held``: what torch's allocator has reserved on those that have a context."""

    def __init__(self, held):
        self.held = held
        self.current = 0
        self.current_streams = {0: (0, 0, 1), 1: (0, 1, 1)}
        self.queries = 0
        self.capturing = False
        self.Stream, self.Event = Stream, Event
        native = SimpleNamespace(
            _CudaEventBase=Event,
            _CudaStreamBase=Stream,
            _cuda_getDevice=lambda: self.current,
            _cuda_getCurrentStream=self.current_streams.__getitem__,
            _cuda_isCurrentStreamCapturing=lambda: self.capturing,
            _cuda_hasPrimaryContext=self.has_context,
            _cuda_memoryStats=self.stats,
        )
        self.torch = SimpleNamespace(_C=native, cuda=self)

    def device_count(self):
        return 2

    def has_context(self, index):
        self.queries += 1
        return index in self.held

    def stats(self, index):
        held = self.held[index]
        if held is None:
            raise RuntimeError("the allocator does not support this")
        bytes_now = {"all": {"current": held, "peak": 9 * held}}
        half = {"all": {"current": held // 2, "peak": held}}
        return {"allocated_bytes": half, "reserved_bytes": bytes_now, "num_alloc_retries": 3, "num_ooms": 1}


def device(held, current=0, clock=lambda: 0.0):
    cuda = Cuda(held)
    cuda.current = current
    return cuda, CudaDevice(cuda.torch, cuda_events.any_capture, clock)


def test_a_stream_is_itself():
    cuda, of = device({0: 1000})
    first = of.stream()
    assert first is of.stream() and first.device_index == 0
    assert first.handle.key == (0, 0, 1)
    cuda.current_streams[0] = (7, 0, 1)
    other = of.stream()
    assert other is not first and other != first
    assert of.is_idle(first) and not of.is_idle(other)
    cuda.current_streams[0] = (0, 0, 1)
    assert of.stream() is first


def test_streams_that_come_and_go_are_not_all_kept():
    cuda, of = device({0: 1000})
    for number in range(500):
        cuda.current_streams[0] = (number, 0, 1)
        of.stream()
    assert len(of.streams) <= cuda_events.STREAMS_LIMIT


def test_memory_with_peaks_and_from_an_allocator_without():
    cuda, of = device({0: 1000})
    assert of.memory() == (500, 1000, 3, 1, None, None, 1000)
    cuda.torch._C._cuda_memoryStats = lambda index: {
        **{name: {"all": {"current": 8}} for name in ("allocated_bytes", "reserved_bytes")},
        **dict.fromkeys(("num_alloc_retries", "num_ooms"), 0),
    }
    assert of.memory() == (8, 8, 0, 0, None, None, None)


def test_pinned_memory_by_the_largest_of_its_figures():
    cuda, of = device({0: 1000})
    figures = {"allocated_bytes": {"current": 64}, "active_bytes": {"current": 8}, "num_host_alloc": 5}
    cuda.torch._C._cuda_hostMemoryStats = lambda: figures
    assert of.memory().pinned_bytes == 64


@pytest.mark.parametrize(
    ("held", "current", "index", "reserved"),
    [
        ({}, 0, None, None),  # no context is made where there is none
        ({1: 1000}, 0, 1, 1000),  # a program on another device than the current
        ({0: 0, 1: 1000}, 0, 1, 1000),  # a context without memory gives way to one with
        ({0: None, 1: None}, 1, 1, None),  # nobody counts memory
    ],
)
def test_which_device_is_in_use(held, current, index, reserved):
    _, of = device(held, current)
    stream, memory = of.stream(), of.memory()
    assert (stream and stream.device_index, memory and memory.reserved_bytes) == (index, reserved)


def test_the_device_in_use_is_searched_for_once_a_second():
    now_s = [0.0]
    cuda, of = device({}, clock=lambda: now_s[0])
    for _ in range(100):
        assert of.stream() is None
    queries = cuda.queries
    assert queries == 2
    cuda.held[0] = 1000
    now_s[0] += cuda_events.SEARCH_S
    assert of.stream().device_index == 0
    queries = cuda.queries
    of.stream()
    assert cuda.queries == queries


def test_a_capture_counts_that_torch_alone_knows_of_or_the_hooks():
    cuda, of = device({0: 1000})
    assert not of.is_capturing()
    cuda.capturing = True
    assert of.is_capturing()
    assert CudaDevice(Cuda({0: 1000}).torch, lambda: True).is_capturing()


@pytest.fixture
def recording():
    """A clock that records an event in another thread until it may go on; and what it has recorded."""
    gpu, recorded = FakeGpu(), []
    loop = FakeLoop(gpu)
    loop.steps(2)
    begun, go_on, plain = threading.Event(), threading.Event(), gpu.record

    def record(event, stream):
        begun.set()
        assert go_on.wait(30)
        plain(event, stream)
        recorded.append(event)

    gpu.record = record
    thread = threading.Thread(target=lambda: loop.clock.record_event(loop.clock.events.next_number()))
    thread.start()
    assert begun.wait(30)
    yield loop.clock, go_on, recorded
    go_on.set()
    thread.join(30)
    assert len(recorded) == 1


def test_a_capture_waits_until_the_clock_has_let_go(recording, monkeypatch):
    (clock, go_on, recorded), sleep = recording, gpu_clock.time.sleep
    monkeypatch.setattr(gpu_clock, "RELEASE_POLLS", 300_000)
    monkeypatch.setattr(gpu_clock.time, "sleep", lambda seconds: go_on.set() or sleep(seconds))
    clock.wait_for_release()
    assert len(recorded) == 1


def test_a_capture_does_not_wait_for_ever(recording, monkeypatch):
    clock, _, recorded = recording
    monkeypatch.setattr(gpu_clock, "RELEASE_POLLS", 5)
    clock.wait_for_release()
    assert recorded == []


def test_a_torch_without_cuda():
    assert not cuda_events.is_built(SimpleNamespace())
    assert not cuda_events.is_built(SimpleNamespace(_C=SimpleNamespace()))
    assert cuda_events.is_built(Cuda({}).torch)


def test_a_step_of_more_boundaries_than_there_are_events(loop, unlimited):
    micro = (layout.FETCH_END, layout.BACKWARD_BEGIN, layout.BACKWARD_END)
    boundaries = (*micro * gpu_clock.POOL, layout.OPTIMIZER_BEGIN, layout.OPTIMIZER_END)
    assert loop.steps(4, boundaries)[2:] == [len(boundaries)] * 2
    assert len(loop.gpu.made) < gpu_clock.POOL


def test_a_gap_says_when_the_event_was_last_pending(unlimited):
    gpu = FakeGpu(behind_ns=250 * MS)
    loop = FakeLoop(gpu, step_ns=100 * MS)
    loop.steps(20)
    marked, times = loop.boundaries(), loop.times()
    assert len(times) > 50
    for number, (time, seen_ns) in times.items():
        not_done_ns = seen_ns - time.gap_us * 1000
        assert marked[number].time_ns < not_done_ns <= marked[number].time_ns + gpu.behind_ns + 5_000
        assert not time.stream_idle
    gpu.behind_ns = 0
    loop.steps(20)
    time, _ = list(loop.times().values())[-1]
    assert time.stream_idle
    assert time.gap_us == 1  # it was recorded at once


def test_the_pool_is_bounded_and_events_come_back(unlimited):
    gpu = FakeGpu(behind_ns=3600 * SECOND)
    loop = FakeLoop(gpu)
    timed = loop.steps(200)
    assert len(gpu.made) == gpu_clock.POOL
    assert timed[-1] == 0
    gpu.now_ns += gpu.behind_ns
    gpu.behind_ns = 0
    loop.steps(100)
    assert len(gpu.made) == gpu_clock.POOL
    assert loop.step() == len(STEP)


def test_a_poll_queries_a_few_events_at_most(unlimited):
    gpu = FakeGpu(behind_ns=20 * SECOND)
    loop = FakeLoop(gpu)
    loop.steps(20)
    gpu.now_ns += 60 * SECOND
    gpu.calls.clear()
    loop.boundary(layout.FETCH_END)
    assert gpu.calls.count("is_done") == gpu_clock.POLL_LIMIT


def test_the_first_event_is_the_anchor_and_others_follow(unlimited):
    loop = FakeLoop(FakeGpu(), step_ns=SECOND)
    loop.steps(30)
    first, *later = loop.anchors()
    assert first[1:] == (0, None)
    assert len(later) >= 4
    assert all(5 * SECOND <= elapsed_ns < 7 * SECOND for _, _, elapsed_ns in later)
    # their sum is the time between the first and the last
    marked = loop.boundaries()
    passed_ns = marked[later[-1][0]].time_ns - marked[first[0]].time_ns
    assert sum(elapsed_ns for *_, elapsed_ns in later) == pytest.approx(passed_ns, abs=10_000)
    kinds = [layout.GPU_TIME, layout.GPU_ANCHOR]
    assert [m.kind for m in loop.marked if m.flag == first[0] and m.kind in kinds] == kinds[::-1]
    assert [m.kind for m in loop.marked if m.flag == later[0][0] and m.kind in kinds] == kinds


@pytest.mark.parametrize("pause_s, counts", [(100, 1), (1000, 2)])
def test_after_a_long_pause_a_new_count_begins(loop, unlimited, pause_s, counts):
    loop.steps(5)
    loop.gpu.now_ns += pause_s * SECOND
    loop.steps(5)
    assert [elapsed_ns for *_, elapsed_ns in loop.anchors()].count(None) == counts


def test_an_event_before_its_anchor_is_dropped(loop, unlimited):
    gpu = loop.gpu
    gpu.behind_ns = SECOND
    loop.steps(3)
    events = loop.clock.events
    assert events.pending
    late, early = events.pending[0], events.pending[1]
    late.event.at_ns, early.event.at_ns = gpu.now_ns, gpu.now_ns - 50 * MS
    gpu.now_ns += 10 * SECOND
    events.poll()
    assert late.number in loop.times() and early.number not in loop.times()


def test_a_pending_event_proves_nothing_of_another_stream(loop, unlimited):
    loop.steps(3)
    loop.gpu.behind_ns = SECOND
    loop.steps(2)
    events, gpu = loop.clock.events, loop.gpu
    first, second = events.pending[0], events.pending[1]
    events.pending[1] = second._replace(stream=FakeStream(0, 9))
    events.poll()  # the first is not done
    gpu.now_ns += 5 * SECOND
    events.poll()
    assert loop.times()[first.number][0].gap_us is not None
    assert loop.times()[second.number][0].gap_us is None


@pytest.mark.parametrize(("seconds", "known"), [(8, True), (9, False)])
def test_a_gap_that_is_too_long_to_be_told_is_not_told_shorter(loop, unlimited, seconds, known):
    loop.steps(3)
    loop.gpu.behind_ns = SECOND
    loop.steps(2)
    first = loop.clock.events.pending[0]
    loop.clock.events.poll()
    loop.gpu.now_ns += seconds * SECOND
    loop.clock.events.poll()
    assert (loop.times()[first.number][0].gap_us is not None) == known
