"""Two ranks that exchange gradients are traced for real: the same steps, and one that ends is left out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.programs import environment
from tests.waiting import until
from tests.warm_torch import WarmProgram
from tuimon.agent.ring.layout import BACKWARD_END, PROFILER_ON, TRACED_STEPS
from tuimon.agent.ring.paths import ring_path
from tuimon.agent.ring.reader import RingReader
from tuimon.sources.tracing.together import Together
from tuimon.trace.raw import TakenBy
from tuimon.trace.reader import read_trace

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import os, sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ending = torch.zeros(1)
while not ending:
    time.sleep(0.02 + 0.005 * rank)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if not os.path.exists(f"{folder}/{rank}"):
        open(f"{folder}/{rank}", "w").close()
    ending.fill_(os.path.exists(f"{folder}/end"))
    dist.all_reduce(ending)
os._exit(0)
"""


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The ranks, once both have made a step."""
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    script = tmp_path / "ddp.py"
    script.write_text(SCRIPT)
    env = environment(tmp_path / "rings", {"GLOO_SOCKET_IFNAME": "lo"})
    with open(os.devnull, "r+") as null:
        streams = [null.fileno()] * 3
        ranks = [WarmProgram([str(script), rank, str(tmp_path)], env, None, streams) for rank in "01"]
        try:
            until(lambda: all((tmp_path / rank).exists() for rank in "01"), "both ranks", 100)
            yield [rank.pid for rank in ranks]
            (tmp_path / "end").touch()
            assert [rank.wait() for rank in ranks] == [0, 0]
        finally:
            for rank in ranks:
                rank.kill()


def backwards_before_the_trace(pid: int) -> list[int]:
    """How many backward passes had ended when each trace began."""
    reader = RingReader(ring_path(pid))
    ended, found = 0, []
    for marker in reader.read():
        ended += marker.kind == BACKWARD_END
        if marker.kind == PROFILER_ON and marker.flag == TRACED_STEPS:
            found.append(ended)
    reader.close()
    return found


def test_both_trace_the_same_steps(pids: list[int], tmp_path: Path) -> None:
    together = Together(pids, 3, 60_000)
    while not together.is_over:
        together.poll()
        time.sleep(0.05)
    assert not together.lost and len(together.takings) == 2
    begun = [backwards_before_the_trace(pid) for pid in pids]
    assert together.is_same == (begun[0][-1] == begun[1][-1])
    for taking in together.takings:
        path = str(tmp_path / f"{taking.pid}.json.gz")
        assert taking.write(path, TakenBy(pid=taking.pid)).steps == 3
        assert len(read_trace(path).steps.all) == 3
