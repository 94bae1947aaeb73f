"""Two ranks under torchrun, each with a ring of its own."""

import json

import pytest

from tests.agent.programs import environment
from tests.warm_torch import warm_python
from tuimon.agent.ring import layout

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = """
import json, os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()

from _tuimon_agent import runtime
from _tuimon_agent.ring import layout
from _tuimon_agent.ring.reader import RingReader
reader = RingReader(runtime.writer().path)
facts = {k: reader.meta()[k] for k in ("rank", "world_size")}
found = [[m.kind for m in reader.read() if m.kind != layout.GC_PAUSE], facts]
with open(os.path.join(sys.argv[1], str(dist.get_rank())), "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
# DistributedDataParallel keeps gloo's threads beyond that. One that frees its last tensor while the interpreter ends
# wants the GIL, is ended for it, and aborts the process: https://github.com/pytorch/pytorch/pull/179291
os._exit(0)
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_ranks(tmp_path):
    script = tmp_path / "ddp.py"
    script.write_text(SCRIPT)
    torchrun = ("-c", "from torch.distributed.run import main; main()", "--standalone", "--nproc-per-node", "2")
    done = warm_python(*torchrun, str(script), str(tmp_path), env=environment(tmp_path / "rings"))
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        kinds, meta = json.loads((tmp_path / str(rank)).read_text())
        assert kinds == [4, 5, layout.OPTIMIZER_MADE, 6, 7] + [4, 5, 6, 7] * 2
        assert meta == {"rank": rank, "world_size": 2}
