"""torch with our hooks and the GPU clock on a real GPU; these tests skip where there is none."""

from __future__ import annotations

import sys

import pytest

from tuimon.agent.ring.layout import GPU_TIME, TORCH_MEMORY


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
        self._hole_reads = RingReader.HOLE_READS
        self._reader = RingReader(runtime.writer().path)

    @property
    def clock(self):
        """The GPU clock, which may pause; None before the first boundary."""
        from tuimon.agent.gpu_clock import GpuClock

        clock = self.runtime.clock or self.runtime.paused_clock
        return clock if isinstance(clock, GpuClock) else None

    def markers(self, *kinds):
        """Of these kinds, since the last time."""
        self.runtime.writer().flush()
        read = [marker for _ in range(self._hole_reads) for marker in self._reader.read()]
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
