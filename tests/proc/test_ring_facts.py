"""What a ring says of its process, well-formed or not."""

import json

from tuimon.agent.ring.reader import parsed_facts
from tuimon.proc.ring_facts import RingFacts, ring_facts
from tuimon.records import OptimizerFacts


def test_the_stacks_of_the_loop_are_whole_or_not_there():
    loop = {"files": ["train.py"], "backward": [[0, 9, "<module>"], [0, 4, "main"]], "optimizer": [[1, 5, "main"]]}
    found = ring_facts({"loop": loop}).loop
    assert found == (("backward", (("train.py", 9, "<module>"), ("train.py", 4, "main"))),)
    for strange in (7, [], {"files": 3}, {**loop, "files": [4]}, {**loop, "backward": [[0, -1, "main"]]}):
        assert ring_facts({"loop": strange}).loop == ()


def test_optimizers_are_described_where_all_their_facts_are_of_the_right_type():
    adam = {"name": "AdamW", "package": "torch", "fused": True, "groups": 148, "tensors": 148, "elements": 124 << 20}
    found = ring_facts({"optimizers": [adam, {"name": "Odd", "package": "mine"}]}).of_process
    assert found["optimizers"] == [
        OptimizerFacts("AdamW", "torch", fused=True, groups=148, tensors=148, elements=124 << 20),
        OptimizerFacts("Odd", "mine"),
    ]
    odd = [{**adam, **wrong} for wrong in ({"fused": 1}, {"tensors": -1}, {"elements": 1 << 70}, {"name": 7})]
    for strange in (7, {}, adam, None, [adam, {"name": "SGD"}], ["SGD"], *([each] for each in odd)):
        assert ring_facts({"optimizers": strange}) == RingFacts()


def test_ranks_that_run_the_same_code_hold_its_stacks_once():
    loop = {"files": ["train.py"], "backward": [[0, 9, "<module>"]], "optimizer": [[0, 5, "main"]]}
    facts = [parsed_facts(json.dumps({"rank": rank, "loop": loop}).encode()) for rank in range(3)]
    assert facts[0]["loop"] is facts[1]["loop"] is facts[2]["loop"]
    assert ring_facts({"loop": dict(loop)}).loop is ring_facts({"loop": dict(loop)}).loop
    other = parsed_facts(json.dumps({"loop": {**loop, "files": ["other.py"]}}).encode())
    assert other["loop"]["files"] == ["other.py"]
    assert facts[0]["loop"]["files"] == ["train.py"]


def test_what_the_monitor_finds_out_by_itself_is_not_taken_from_a_ring():
    assert ring_facts({"role": "trainer", "command": ["rm"], "pid": 7, "ended": True}) == RingFacts()


def test_facts_of_the_wrong_type_are_unknown():
    strange = {"rank": [], "world_size": "many", "python": 3, "gpu_uuids": "GPU-1", "tf32": 1, "run": "", "torch": None}
    assert ring_facts({**strange, "matmul_dtypes": "float32", "intra_op_threads": "2"}) == RingFacts()
    assert ring_facts({"rank": True, "gpu_uuids": [None, 1, "GPU-1"]}) == RingFacts()
