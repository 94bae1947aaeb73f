"""Collectives of some steps, as torch's flight recorder holds them."""

import json
import pickle
import sys
import time
import types
from _thread import get_ident

import pytest

from tests.warm_torch import WarmProgram
from tuimon.agent import cuda
from tuimon.agent.control import orders
from tuimon.agent.pace import pace
from tuimon.agent.ring.control_words import Command, State
from tuimon.sources.control_channel import ControlError


class Recorder:
    """A flight recorder: the test adds what the program does."""

    def __init__(self):
        self.entries = []
        self.reads = 0

    def add(self, name="nccl:all_reduce", sizes=((4, 2),), dtype="Float", gathered=(), first=False):
        self.entries.append({
            "record_id": len(self.entries) + (0 if not first else 1), "profiling_name": name,
            "time_created_ns": time.time_ns() + 1, "input_sizes": [list(each) for each in sizes],
            "output_sizes": [list(each) for each in gathered], "input_dtypes": [dtype] * len(sizes),
            "output_dtypes": [dtype] * len(gathered),
        })  # fmt: skip
        time.sleep(1e-5)

    def dump(self, includes_collectives, includes_stacks, only_active):
        assert (includes_collectives, includes_stacks, only_active) == (True, False, False)
        self.reads += 1
        return pickle.dumps({"version": "2.10", "entries": self.entries})


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    internals = types.SimpleNamespace(_dump_nccl_trace=found.dump)
    monkeypatch.setitem(sys.modules, "torch._C", types.SimpleNamespace(_distributed_c10d=internals))
    return found


def answer(channel, request):
    request.poll()
    return json.loads(channel.text(request.result().text))


def test_the_collectives_of_some_steps_are_counted_by_name_and_type(own_channel, recorder):
    recorder.add(sizes=((900, 900),))  # before
    request = own_channel.order(Command.COLLECTIVES, 2)
    orders.attend()
    for _ in range(2):
        recorder.add("nccl:_all_gather_base", ((8,),), "BFloat16", gathered=((16,),))
        recorder.add()
        recorder.add(sizes=((4,), (2, 3)))
        recorder.add("nccl:coalesced", ())
        recorder.add("nccl:send 0->1", ((1,),), "Half")
        assert recorder.reads == 0
        orders.attend()
    found = answer(own_channel, request)
    assert found["rows"] == [
        ["all_reduce", "Float", 4, 36, 10], ["all_gather", "BFloat16", 2, 32, 16], ["send", "Half", 2, 2, 1],
    ]  # fmt: skip
    assert (found["steps"], recorder.reads) == (2, 1)


def test_steps_are_counted_by_updates_where_gradients_are_accumulated(own_channel, recorder, monkeypatch):
    monkeypatch.setattr(pace, "has_optimizer", True)
    monkeypatch.setattr(pace, "thread", get_ident())
    request = own_channel.order(Command.COLLECTIVES, 2)
    orders.attend()
    for passes in range(1, 7):
        recorder.add()
        orders.attend()
        assert recorder.reads == (passes >= 5)
        monkeypatch.setattr(pace, "updates", pace.updates + (passes % 2 == 0))
    assert answer(own_channel, request)["steps"] == 2


def test_nothing_is_read_while_a_graph_is_captured(own_channel, recorder):
    request = own_channel.order(Command.COLLECTIVES, 1)
    orders.attend()
    recorder.add()
    cuda.open_captures.add(7)
    orders.attend()
    assert recorder.reads == 0
    cuda.open_captures.clear()
    orders.attend()
    assert answer(own_channel, request)["rows"] == [["all_reduce", "Float", 1, 8, 8]]


@pytest.mark.parametrize("case", ["no recorder", "switched off", "overwritten", "damaged"])
def test_what_cannot_be_told_is_refused(own_channel, recorder, monkeypatch, case):
    if case == "no recorder":
        monkeypatch.setitem(sys.modules, "torch._C", types.SimpleNamespace())
    request = own_channel.order(Command.COLLECTIVES, 1)
    orders.attend()
    if case == "overwritten":
        recorder.add(first=True)
    if case == "damaged":
        recorder.entries = [{"record_id": 0}]
    orders.attend()
    request.poll()
    assert request.answer.state == (State.FAILED if case == "damaged" else State.REFUSED)
    with pytest.raises(ControlError, match="flight recorder" if case != "damaged" else "KeyError"):
        request.result()


_RANK = """
import json, sys, torch, torch.distributed as dist
from types import SimpleNamespace
from tuimon.agent.control import collectives

rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 30, bias=False))
for _ in range(3):  # buckets are made anew after the first step
    model(torch.ones(2, 100)).sum().backward()
found = []


def finish(steps, text):
    found.append(text)


work = collectives.begin(SimpleNamespace(argument=2, report=found.append, refuse=found.append, finish=finish))
for _ in range(2):
    for _ in range(3):
        dist.all_reduce(torch.ones(5, dtype=torch.float64))
    model(torch.ones(2, 100)).sum().backward()
    work.step()
with open(f"{out}{rank}", "w") as file:
    json.dump(found, file)
dist.barrier()
"""


def test_real_ranks_tell_what_distributed_data_parallel_and_the_loop_exchange(tmp_path):
    """Two ranks over gloo, whose recorder is on unless it is switched off."""
    program = tmp_path / "rank.py"
    program.write_text(_RANK)
    with open("/dev/null", "r+") as null:
        words = [[str(program), str(rank), str(tmp_path / "store"), str(tmp_path / "out")] for rank in (0, 1)]
        ranks = [WarmProgram(each, {"PYTHONPATH": ".", "GLOO_SOCKET_IFNAME": "lo"}, None, [null.fileno()] * 3)
                 for each in words]  # fmt: skip
        try:
            assert [each.wait() for each in ranks] == [0, 0]
        finally:
            for each in ranks:
                each.kill()
    for rank in (0, 1):
        *_, text = json.loads((tmp_path / f"out{rank}").read_text())
        assert json.loads(text)["rows"] == [["all_reduce", "Float", 2, 6000, 3000], ["all_reduce", "Double", 6, 30, 5]]
