"""What StackSource is made of: parsing, frames, folding, budget; on literal inputs."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tuimon.records import Frame
from tuimon.sources import frames, pyspy_errors, speedscope
from tuimon.sources.frames import FrameNumbers, Place, SourceText, is_user_file
from tuimon.sources.sampling_budget import Allowance, CostModel, plan, split
from tuimon.sources.sampling_turns import Key, Turn, Turns
from tuimon.sources.stack_fold import PER_PROCESS, PER_THREAD, Fold, Stack, coarse, is_parked, most_frequent, shorten

PACKAGES = "/venv/lib/python3.11/site-packages"
MAIN = Place("/home/u/train.py", 10, "main")
MODEL = Place("/home/u/model.py", 5, "forward")
WRAPPED = Place(f"{PACKAGES}/torch/nn/modules/module.py", 1775, "_wrapped_call_impl")
CALL = Place(f"{PACKAGES}/torch/nn/modules/module.py", 1786, "_call_impl")
LINEAR = Place(f"{PACKAGES}/torch/nn/modules/linear.py", 134, "forward")
STEP = Place(f"{PACKAGES}/torch/optim/adam.py", 200, "step")
HOOK = Place(f"{PACKAGES}/tuimon/target/hooks.py", 60, "tuimon_backward")
FETCH = Place(f"{PACKAGES}/torch/utils/data/dataloader.py", 700, "__next__")
WORKER = Place(f"{PACKAGES}/torch/utils/data/_utils/worker.py", 349, "_worker_loop")
ITEM = Place("/home/u/data.py", 31, "__getitem__")
PIL = Place(f"{PACKAGES}/PIL/Image.py", 3000, "open")
PIL_INSIDE = Place(f"{PACKAGES}/PIL/JpegImagePlugin.py", 800, "jpeg_factory")
SELECT = Place("/usr/lib/python3.11/selectors.py", 415, "select")


def scope(profiles: list[dict[str, object]], names: list[dict[str, object]]) -> bytes:
    return json.dumps({"profiles": profiles, "shared": {"frames": names}, "exporter": "py-spy@0.4.3"}).encode()


def test_speedscope() -> None:
    raw = scope(
        [
            {"type": "sampled", "name": 'Thread 43 "a "quoted"\nname"', "samples": [[2, 0]], "weights": [0.1]},
            {"type": "sampled", "name": 'Thread 42 "MainThread"', "samples": [[3, 0, 1], [3, 0], [3, 0, 1]]},
            {"type": "sampled", "name": "Thread 44", "samples": [[], [9]]},
        ],
        [
            {"name": "main", "file": "/t.py", "line": 3, "col": None},
            {"name": "Outer.<locals>.inner", "file": "/t.py", "line": None},
            {"name": "thread (43): x", "file": "", "line": 0},
            {"name": "thread (42): MainThread", "file": "", "line": 0},
        ],
    )
    samples = speedscope.parse(raw, 42)
    assert samples.instants == 3
    assert [(t.tid, t.name) for t in samples.threads] == [(42, "MainThread"), (43, 'a "quoted"\nname'), (44, "")]
    main, inner = Place("/t.py", 3, "main"), Place("/t.py", 0, "inner")
    assert samples.threads[0].stacks == {(main, inner): 2, (main,): 1}
    assert samples.threads[2].stacks == {(): 2}  # a frame that is not in the table is left out


def test_threads_of_older_pythons_have_no_os_id() -> None:
    raw = scope(
        [{"name": 'Thread 0x7F01 "MainThread"', "samples": [[]]}, {"name": 'Thread 0x7F02 "t"', "samples": [[]]}], []
    )
    assert [thread.tid for thread in speedscope.parse(raw, 42).threads] == [42, 0x7F02]


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"\xff", b'{"profiles": [{"name": 1, "samples": []}], "shared": {}}']
)
def test_not_a_speedscope_file(raw: bytes) -> None:
    with pytest.raises(ValueError, match="speedscope"):
        speedscope.parse(raw, 42)


@pytest.mark.parametrize(
    ("file", "user"),
    [
        ("/home/u/train.py", True),
        ("/home/u/lib/model.py", True),
        ("/home/u/torch/utils/mine.py", True),
        ("<ipython-input-3-abc>", True),
        ("<stdin>", True),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        ("", False),
        ("/usr/lib/python3.11/threading.py", False),
        ("/usr/lib64/python3.9/queue.py", False),
        ("/opt/pypy/lib/pypy3.10/site.py", False),
        ("/opt/lib/python3.13t/queue.py", False),
        ("/usr/lib/python311.zip/json.py", False),
        ("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("/home/u/src/pytorch/torch/nn/modules/linear.py", False),
        ("/tmp/torchinductor_u/ab/cab.py", False),
        (frames.__file__, False),
    ],
)
def test_whose_code_it_is(file: str, user: bool) -> None:
    assert is_user_file(file) is user


def test_source_text(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(b"x = 1\n\t y = '\x1b[31m[bold]\x07'\t# caf\xe9 \n" + b"z" * 500 + b"\n")
    source = SourceText()
    assert source.line(str(script), 1) == "x = 1"
    assert source.line(str(script), 2) == "y = '[bold]' # caf\ufffd"
    assert source.line(str(script), 3) == "z" * 160
    assert [source.line(str(script), number) for number in (0, -1, 4)] == ["", "", ""]
    script.unlink()
    assert source.line(str(script), 1) == "x = 1"  # read once


def test_files_that_have_no_source_text(tmp_path: Path) -> None:
    huge, pipe, changed = tmp_path / "huge.py", tmp_path / "pipe.py", tmp_path / "changed.py"
    huge.write_bytes(b"x\n" * (3 << 20))
    os.mkfifo(pipe)
    changed.write_text("x\n")
    os.utime(changed, (2000.0, 2000.0))
    source = SourceText()
    for file in (huge, pipe, tmp_path, tmp_path / "gone.py", "nul\0byte.py", "<ipython-input-1>"):
        assert source.line(str(file), 1) == ""
    assert source.line(str(changed), 1, not_after_unix_s=1000.0) == ""  # not what the process runs any more
    assert SourceText().line(str(changed), 1, not_after_unix_s=3000.0) == "x"


def test_frames_are_numbered_once_and_bounded(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("first\nsecond\n")
    numbers = FrameNumbers(limit=3)
    here = str(script)
    assert numbers.number(Place(here, 2, "f")) == 0
    assert numbers.number(CALL) == 1
    assert numbers.number(Place(here, 2, "f")) == 0
    assert numbers.take_new() == (
        0,
        [Frame(here, 2, "f", "second", True), Frame(CALL.file, CALL.line, CALL.function)],
    )
    assert numbers.take_new() == (2, [])
    assert [numbers.number(Place(here, line, "f")) for line in (1, 8, 9, 1, 8)] == [2, 3, 3, 2, 3]
    first, fresh = numbers.take_new()
    assert (first, [frame.function for frame in fresh]) == (2, ["f", "(more frames)"])
    assert numbers.number(Place(here, 10, "f")) == 3
    assert numbers.take_new() == (4, [])


def test_what_is_kept_of_a_stack() -> None:
    numbers = FrameNumbers()
    whole = [MAIN, WRAPPED, CALL, MODEL, WRAPPED, CALL, LINEAR]
    assert shorten(whole, numbers) == (MAIN, CALL, MODEL, CALL, LINEAR)
    inside = [Place(f"{PACKAGES}/PIL/x.py", line, "f") for line in range(3)]
    assert shorten([ITEM, PIL, *inside, PIL_INSIDE, SELECT], numbers) == (ITEM, PIL, PIL_INSIDE, SELECT)
    deep = [MAIN._replace(line=line) for line in range(1000)]
    kept = shorten(deep, numbers)
    assert len(kept) == 48
    assert (kept[0], kept[-1]) == (deep[0], deep[-1])
    assert shorten([], numbers) == ()


@pytest.mark.parametrize(
    ("stack", "left"),
    [
        ((MAIN, CALL, MODEL, CALL, LINEAR), (MAIN, CALL)),
        ((MAIN, STEP, MAIN, CALL, MODEL, LINEAR), (MAIN, STEP, CALL)),  # a closure inside step()
        ((MAIN, HOOK, MODEL), (MAIN, HOOK)),
        ((MAIN, FETCH, WORKER, ITEM), (MAIN, FETCH, WORKER)),  # a forked worker
        ((MAIN, ITEM, PIL), (MAIN, ITEM)),
        ((SELECT, PIL), (SELECT,)),
    ],
)
def test_a_stack_without_its_detail(stack: Stack, left: Stack) -> None:
    assert coarse(stack, FrameNumbers()) == left


def test_rare_stacks_keep_their_phase() -> None:
    """Forty lines of a model, each seen a little: half of them merge into "in a module", none is lost."""
    numbers = FrameNumbers()
    counts: Counter[Stack] = Counter({(MAIN, CALL, MODEL._replace(line=line)): 2 + line % 3 for line in range(40)})
    counts[(MAIN, STEP)] = 50
    counts[(MAIN, FETCH)] = 1
    listed, lost = most_frequent(counts, 12, numbers)
    assert len(listed) <= 12
    assert lost == 0
    assert sum(count for _, count in listed) == counts.total()
    assert dict(listed)[(MAIN, STEP)] == 50
    assert dict(listed)[(MAIN, FETCH)] == 1
    assert dict(listed)[(MAIN, CALL)] > 50


def test_stacks_that_merge_with_none_are_counted() -> None:
    counts: Counter[Stack] = Counter({(Place(f"/home/u/{i}.py", 1, "f"),): 100 - i for i in range(50)})
    listed, lost = most_frequent(counts, 12, FrameNumbers())
    assert len(listed) == 12
    assert lost + sum(count for _, count in listed) == counts.total()


def test_parked_threads() -> None:
    numbers = FrameNumbers()
    assert is_parked(Counter({(SELECT,): 9}), numbers)
    assert not is_parked(Counter({(SELECT,): 9, (PIL,): 1}), numbers)
    assert not is_parked(Counter({(MAIN, SELECT): 9}), numbers)
    assert not is_parked(Counter({(WORKER, SELECT): 9}), numbers)


def test_a_fold_is_bounded() -> None:
    fold = Fold(FrameNumbers())
    total = 0
    for thread in range(10):
        stacks: Counter[Stack] = Counter(
            {(Place(f"/home/u/{thread}.py", 1, "f"), Place(f"/home/u/{i}.py", 1, "g")): 3 for i in range(30)}
        )
        total += stacks.total()
        fold.add(100 + thread, f"t{thread}", stacks, main=thread == 0)
    fold.add(200, "idle", Counter({(SELECT,): 50}), main=False)
    fold.add(201, "no frames", Counter({(): 50}), main=False)
    assert len(fold.stacks) <= PER_PROCESS
    assert max(Counter(stack.tid for stack in fold.stacks).values()) <= PER_THREAD
    assert sum(stack.count for stack in fold.stacks) + fold.folded == total


def test_the_main_thread_is_listed_even_when_it_waits() -> None:
    fold = Fold(FrameNumbers())
    fold.add(1, "MainThread", Counter({(SELECT,): 50}), main=True)
    assert [stack.count for stack in fold.stacks] == [50]


def test_the_cost_of_a_window_is_learnt() -> None:
    cost = CostModel()
    for instants in (20, 60, 100, 40, 80) * 12:
        cost.learn(instants, 0.05 + instants * 0.001)
    assert cost.start_s == pytest.approx(0.05, rel=0.05)
    assert cost.instant_s == pytest.approx(0.001, rel=0.05)


def test_windows_of_one_length_still_give_their_cost() -> None:
    cost = CostModel()
    for _ in range(60):
        cost.learn(80, 0.2)
    assert cost.start_s + 80 * cost.instant_s == pytest.approx(0.2, rel=0.05)


def test_noise_makes_no_nonsense() -> None:
    cost = CostModel()
    for instants, cpu_s in ((100, 0.0), (10, 0.5), (200, 0.0), (5, 0.4)) * 20:
        cost.learn(instants, cpu_s)
    assert cost.instant_s > 0
    assert cost.start_s > 0


def spent(cost: CostModel, share: float) -> float:
    """CPU ratio that a plan costs if the model is right."""
    made = plan(cost, share)
    return cost.window_cpu_s(made.rate_hz, made.window_s) / made.window_s


@pytest.mark.parametrize("threads", [1, 4, 40])
@pytest.mark.parametrize("share", [0.2, 0.1, 0.03, 0.015])
def test_a_steady_plan_keeps_to_its_share(threads: int, share: float) -> None:
    cost = CostModel(threads)
    assert spent(cost, share) <= share or not plan(cost, share).steady


def test_a_plan_follows_what_is_asked_and_what_it_costs() -> None:
    cheap, dear = CostModel(1), CostModel(1)
    for _ in range(60):
        dear.learn(50, 1.0)
    assert plan(cheap, 1.0) == (100, 2.0, True)
    assert plan(cheap, 1.0, limit_hz=30) == (30, 2.0, True)
    assert plan(cheap, 1.0, limit_hz=0.3) == (1, 2.0, True)
    assert plan(cheap, 0.03).rate_hz >= 20
    assert plan(CostModel(20), 0.03).window_s > plan(cheap, 0.03).window_s
    assert plan(dear, 0.03).rate_hz <= 2
    paused = plan(CostModel(200), 0.03)
    assert (paused.rate_hz, paused.steady) == (1, False)


@pytest.mark.parametrize(
    ("trainers", "workers", "shares"),
    [
        (1, 0, (0.0276, 0.0, 0.0)),
        (1, 8, (0.01932, 0.0, 0.00828)),
        (64, 0, (0.01104, 0.01656, 0.0)),
        (0, 3, (0.0, 0.0, 0.0276)),
        (0, 0, (0.0, 0.0, 0.0)),
    ],
)
def test_the_first_rank_gets_its_share(trainers: int, workers: int, shares: tuple[float, float, float]) -> None:
    got = split(0.03, trainers, workers)
    assert got[:3] == pytest.approx(shares)
    assert sum(got) <= 0.03 + 1e-12


class Simulated:
    """Turns against a clock of our own: each window costs what the process really costs."""

    def __init__(self, budget: float, instants_s: dict[int, float]) -> None:
        self.turns = Turns(budget, 100.0, 0.0)
        self.instants_s = instants_s
        self.running: dict[int, tuple[float, Turn]] = {}
        self.cpu_s = 0.0
        self.sampled_s: Counter[int] = Counter()
        self.most = 0

    def failing(self, key: Key) -> bool:
        return key[0] not in self.instants_s

    def run(self, seconds: float, trainers: list[int], workers: list[int]) -> None:
        for tenth in range(int(seconds * 10)):
            now_s = tenth / 10
            for pid, (due_s, turn) in list(self.running.items()):
                if now_s >= due_s:
                    del self.running[pid]
                    instants = max(round(turn.plan.rate_hz * turn.plan.window_s), 1)
                    cpu_s = 0.01 + instants * self.instants_s[pid]
                    turn.allowance.spend(cpu_s - turn.cpu_s)
                    self.turns.learn(turn.key, instants, cpu_s)
                    self.cpu_s += cpu_s
                    self.sampled_s[pid] += turn.plan.window_s
            found = self.turns.due(trainers, workers, lambda pid: (pid, 1), self.running.keys(), now_s, self.failing)
            for turn in found:
                self.running[turn.key[0]] = (now_s + turn.plan.window_s, turn)
            self.most = max(self.most, len(self.running))


NO_PID = 1 << 23  # pids beyond what the kernel gives out


@pytest.mark.parametrize(("processes", "instant_s"), [(1, 0.0005), (10, 0.0005), (64, 0.0005), (1, 0.05), (3, 0.05)])
def test_the_budget_is_kept_whatever_the_number_of_processes(processes: int, instant_s: float) -> None:
    trainers = list(range(NO_PID, NO_PID + processes))
    simulated = Simulated(0.03, dict.fromkeys(trainers, instant_s))
    simulated.run(600, trainers, [])
    assert 0.012 < simulated.cpu_s / 600 < 0.032
    assert all(simulated.sampled_s[pid] > 0 for pid in trainers)  # nobody is forgotten
    if instant_s < 0.01:
        assert simulated.sampled_s[trainers[0]] > 0.93 * 600  # in steps of a tenth of a second
    if processes == 10:  # windows of 20 s, staggered at the start; the last ones have not ended
        assert all(seconds > 0.88 * 600 for seconds in simulated.sampled_s.values())


def test_a_dear_process_does_not_starve_a_cheap_one() -> None:
    first, dear, cheap = NO_PID, NO_PID + 1, NO_PID + 2
    simulated = Simulated(0.03, {first: 0.0005, dear: 0.05, cheap: 0.0005})
    simulated.run(600, [first, dear, cheap], [])
    assert simulated.sampled_s[cheap] >= 40
    assert simulated.sampled_s[dear] >= 24


def test_a_failing_worker_does_not_block_the_others() -> None:
    simulated = Simulated(0.03, {NO_PID: 0.0005, NO_PID + 2: 0.0005})
    simulated.run(60, [NO_PID], [NO_PID + 1, NO_PID + 2])
    assert simulated.sampled_s[NO_PID + 2] > 10


def test_workers_take_turns_beside_the_trainer() -> None:
    workers = list(range(NO_PID + 1, NO_PID + 9))
    simulated = Simulated(0.03, dict.fromkeys([NO_PID, *workers], 0.0005))
    simulated.run(300, [NO_PID], workers)
    assert simulated.most == 2
    assert min(simulated.sampled_s[pid] for pid in workers) > 0.5 * max(simulated.sampled_s[pid] for pid in workers)
    assert simulated.cpu_s / 300 < 0.032


def test_an_allowance_holds_the_budget_whatever_a_window_costs() -> None:
    allowance = Allowance(0.03, 0.0)
    spent_s = 0.0
    for tenth in range(6000):
        if allowance.open(tenth / 10):
            allowance.spend(0.25)
            spent_s += 0.25
    assert spent_s / 600 == pytest.approx(0.03, rel=0.05)


def test_what_pyspy_says_becomes_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'"
    me = os.getpid()
    monkeypatch.setattr(pyspy_errors, "in_container", lambda: True)
    assert "--cap-add SYS_PTRACE" in (pyspy_errors.explain(denied, me).hint or "")
    monkeypatch.setattr(pyspy_errors, "in_container", lambda: False)
    for scope_now, word in (
        (1, "kernel.yama.ptrace_scope=0"),
        (2, "sudo"),
        (3, "reboot"),
        (0, "seccomp"),
        (None, "seccomp"),
    ):
        monkeypatch.setattr(pyspy_errors, "yama_scope", lambda scope_now=scope_now: scope_now)
        assert word in (pyspy_errors.explain(denied, me).hint or "")
    unsupported = pyspy_errors.explain("Error: Unsupported version of Python: 3.99.0\n\nStack backtrace:\n  0: x", me)
    assert unsupported.message == "no stack samples: py-spy does not know Python 3.99.0"
    early = pyspy_errors.explain("Error: Failed to find python version from target process", me)
    assert early.passing
    other = pyspy_errors.explain("Error: \x1b[31mSomething else\n\nStack backtrace:\n   0: foo", me)
    assert other.message == f"no stack samples of process {me}: Something else"
    assert "py-spy said nothing" in pyspy_errors.explain("", me).message
    assert pyspy_errors.explain("Error: Failed to find a python interpreter in the .data section", me).passing


def test_pyspys_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuimon.sources import pyspy

    monkeypatch.setenv("RUST_BACKTRACE", "full")
    monkeypatch.setenv("RUST_LOG", "debug")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    env = pyspy.environment()
    assert not [name for name in env if name.startswith("RUST_")]
    assert env["LC_ALL"] == "C"
    assert env["PATH"] == os.environ["PATH"]
