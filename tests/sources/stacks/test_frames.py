"""Frames: their ids, how stacks are shortened for the log, and the code around a line."""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.session.records import process
from tuimon.proc import procfs
from tuimon.proc.processes import start_unix_s
from tuimon.proc.ring_facts import RawFrame
from tuimon.proc.target_files import TargetFiles
from tuimon.records import Frame
from tuimon.sources.source_facts import ProcessCode
from tuimon.sources.source_text import CloseUp
from tuimon.sources.stacks.frame_ids import FrameIds
from tuimon.sources.stacks.shorten import (
    PER_MAIN_THREAD,
    PER_PROCESS,
    PER_THREAD,
    RawStack,
    WindowStacks,
    most_frequent,
    phase_depth,
    shorten_stack,
)
from tuimon.text import AROUND_LINES

PACKAGES = "/venv/lib/python3.11/site-packages"
MAIN = RawFrame("/home/u/train.py", 10, "main")
MODEL = RawFrame("/home/u/model.py", 5, "forward")
WRAPPED = RawFrame(f"{PACKAGES}/torch/nn/modules/module.py", 1775, "_wrapped_call_impl")
CALL = RawFrame(f"{PACKAGES}/torch/nn/modules/module.py", 1786, "_call_impl")
LINEAR = RawFrame(f"{PACKAGES}/torch/nn/modules/linear.py", 134, "forward")
STEP = RawFrame(f"{PACKAGES}/torch/optim/adam.py", 200, "step")
CONTEXT = RawFrame(f"{PACKAGES}/torch/utils/_contextlib.py", 124, "decorate_context")
SCHEDULED = RawFrame(f"{PACKAGES}/torch/optim/lr_scheduler.py", 166, "wrapper")
HOOK = RawFrame(f"{PACKAGES}/tuimon/agent/hooks.py", 60, "tuimon_backward")
FETCH = RawFrame(f"{PACKAGES}/torch/utils/data/dataloader.py", 700, "__next__")
WORKER = RawFrame(f"{PACKAGES}/torch/utils/data/_utils/worker.py", 349, "_worker_loop")
FETCHER = RawFrame(f"{PACKAGES}/torch/utils/data/_utils/fetch.py", 54, "fetch")
ITEM = RawFrame("/home/u/data.py", 31, "__getitem__")
PIL = RawFrame(f"{PACKAGES}/PIL/Image.py", 3000, "open")
PIL_INSIDE = RawFrame(f"{PACKAGES}/PIL/JpegImagePlugin.py", 800, "jpeg_factory")
METRIC = RawFrame(f"{PACKAGES}/torchmetrics/metric.py", 315, "forward")
METRIC_INSIDE = RawFrame(f"{PACKAGES}/torchmetrics/functional/classification/stat_scores.py", 449, "_update")
LOSS = RawFrame(f"{PACKAGES}/torchmetrics/image/ssim.py", 200, "update")
SELECT = RawFrame("/usr/lib/python3.11/selectors.py", 415, "select")


def test_what_is_kept_of_a_stack() -> None:
    ids = FrameIds()
    whole = [MAIN, WRAPPED, CALL, MODEL, WRAPPED, CALL, LINEAR]
    assert shorten_stack(whole, ids) == (MAIN, CALL, MODEL, CALL, LINEAR)
    inside = [RawFrame(f"{PACKAGES}/PIL/x.py", line, "f") for line in range(3)]
    assert shorten_stack([ITEM, PIL, *inside, PIL_INSIDE, SELECT], ids) == (ITEM, PIL, PIL_INSIDE, SELECT)
    propagates = [
        RawFrame(f"{PACKAGES}/torch_geometric/nn/conv/{name}", 9, "f") for name in ("sg_conv.py", "x.py", "y.py")
    ]
    assert shorten_stack([MODEL, CALL, *propagates], ids) == (MODEL, CALL, propagates[0], propagates[2])
    comprehension = PIL_INSIDE._replace(function="<listcomp>")  # has no frame of its own from Python 3.12 on
    assert shorten_stack([ITEM, PIL, PIL_INSIDE, comprehension, SELECT], ids) == (ITEM, PIL, PIL_INSIDE, SELECT)
    deep = [MAIN._replace(line=line) for line in range(1000)]
    kept = shorten_stack(deep, ids)
    assert len(kept) == 48
    assert (kept[0], kept[-1]) == (deep[0], deep[-1])
    assert shorten_stack([], ids) == ()


def test_the_package_that_a_line_of_the_users_imports_is_kept_in_every_form_and_our_hook_is_not_taken_for_it() -> None:
    """Of a program from stdin or in a zipapp nothing else shows what is imported."""
    ids = FrameIds()
    line = RawFrame("<stdin>", 1, "<module>")
    loading = RawFrame("<frozen importlib._bootstrap>", 1176, "_find_and_load")
    hook = RawFrame(f"{PACKAGES}/tuimon/agent/watch.py", 69, "exec_module")
    torch = RawFrame(f"{PACKAGES}/torch/__init__.py", 445, "<module>")
    numpy = RawFrame(f"{PACKAGES}/numpy/__init__.py", 11, "<module>")
    leaf = RawFrame("/usr/lib/python3.11/dataclasses.py", 433, "_create_fn")
    assert torch._replace(line=0) in shorten_stack([line, loading, hook, torch, loading, numpy, loading, leaf], ids)
    many = [(line, loading, hook, torch._replace(line=n), loading, numpy._replace(line=n)) for n in range(99)]
    listed, lost = most_frequent(Counter(shorten_stack(stack, ids) for stack in many), 24, ids)
    assert lost == 0 and all(any("torch" in frame.file for frame in stack) for stack, _ in listed)


FIT = RawFrame(f"{PACKAGES}/nice/trainer.py", 70, "fit")
EPOCH = RawFrame(f"{PACKAGES}/nice/trainer.py", 90, "run_epoch")
BATCH = RawFrame(f"{PACKAGES}/nice/trainer.py", 120, "train_batch")
NOTIFY = RawFrame(f"{PACKAGES}/nice/events.py", 9, "notify")
CALLBACK = RawFrame(f"{PACKAGES}/nice/callbacks.py", 9, "on_step")
STEPPED = RawFrame(f"{PACKAGES}/nice/trainer.py", 140, "call_strategy")
NEXT = RawFrame(f"{PACKAGES}/nice/fetchers.py", 5, "__next__")
PATH = tuple((frame.file, frame.function) for frame in (FIT, EPOCH, BATCH, STEPPED))


@pytest.mark.parametrize(
    ("inside", "kept"),
    [
        ((EPOCH, FETCH), (FIT, EPOCH, FETCH)),
        ((EPOCH, BATCH, CALL, LINEAR), (FIT, BATCH, CALL, LINEAR)),
        (
            (EPOCH, NOTIFY, STEPPED, CALL, NOTIFY, CALL, LINEAR),
            (FIT, EPOCH, STEPPED, CALL, CALL, LINEAR),
        ),  # runs the model
        ((EPOCH, NEXT, NEXT, NOTIFY, ITEM), (FIT, EPOCH, NEXT, NOTIFY, ITEM)),  # what it iterates over
        ((EPOCH, BATCH, ITEM), (FIT, BATCH, ITEM)),
        ((EPOCH, NOTIFY, NOTIFY, ITEM), (FIT, EPOCH, NOTIFY, ITEM)),
        ((EPOCH, BATCH, PIL), (FIT, BATCH, PIL)),
        ((EPOCH, NOTIFY, CALLBACK, NOTIFY, PIL), (FIT, EPOCH, CALLBACK, PIL)),
        ((EPOCH, BATCH, STEP, STEPPED, NOTIFY, MODEL), (FIT, STEP, STEPPED, NOTIFY, MODEL)),
        ((EPOCH, PIL, STEPPED, PIL, ITEM), (FIT, EPOCH, PIL, ITEM)),  # a function that is called from elsewhere as well
    ],
)
def test_of_a_library_that_owns_the_loop_the_line_is_kept_at_which_a_stack_leaves_the_path_to_backward(
    inside: RawStack, kept: RawStack
) -> None:
    assert shorten_stack((MAIN, FIT, *inside), FrameIds(), PATH) == (MAIN, *kept)


@pytest.mark.parametrize(
    ("stack", "left"),
    [
        ((MAIN, CALL, MODEL, CALL, LINEAR), (MAIN, CALL)),
        ((MAIN, STEP, MAIN, CALL, MODEL, LINEAR), (MAIN, STEP, MAIN, CALL)),  # a closure inside step()
        ((MAIN, SCHEDULED, STEP, EPOCH, PIL), (MAIN, SCHEDULED, STEP, EPOCH)),  # one that runs no module there
        ((MAIN, STEP, CONTEXT, EPOCH, PIL, ITEM, MODEL), (MAIN, STEP, CONTEXT, EPOCH, PIL, ITEM)),  # a library's, too
        ((MAIN, SCHEDULED, STEP), (MAIN, SCHEDULED)),
        ((MAIN, HOOK, MODEL), (MAIN, HOOK)),
        ((MAIN, FETCH, WORKER, ITEM), (MAIN, FETCH, WORKER, ITEM)),  # a forked worker
        ((MAIN, FETCH, FETCHER, ITEM, PIL), (MAIN, FETCH, FETCHER, ITEM)),  # what makes the data
        ((MAIN, FETCH, FETCHER, ITEM, CALL, LINEAR), (MAIN, FETCH, FETCHER, ITEM, CALL)),
        ((MAIN, CALL, METRIC, METRIC_INSIDE, CALL), (MAIN, CALL, METRIC)),  # a metric is a module too
        ((MAIN, CALL, METRIC, METRIC, LOSS, SELECT), (MAIN, CALL, METRIC, METRIC, LOSS)),  # one may train on it
        ((MAIN, ITEM, PIL), (MAIN,)),
        ((MAIN, FIT, NOTIFY, ITEM), (MAIN,)),
        ((MAIN, FIT, CALLBACK, CALLBACK, PIL), (MAIN, FIT, CALLBACK, CALLBACK)),
        ((), ()),
    ],
)
def test_a_stack_is_shortened_down_to_what_shows_its_phase(stack: RawStack, left: RawStack) -> None:
    assert stack[: phase_depth(stack, 0, FrameIds())] == left


def test_what_the_loops_lines_call_is_kept_be_it_by_a_library() -> None:
    ids = FrameIds()
    assert phase_depth((MAIN, ITEM, MODEL, PIL), 1, ids) == 2
    assert phase_depth((MAIN, NOTIFY, ITEM, MODEL), 1, ids) == 3
    loading = RawFrame("<frozen importlib._bootstrap>", 1176, "_find_and_load")
    assert phase_depth((MAIN, loading, PIL, PIL_INSIDE), 2, ids) == 3  # an import calls nothing of the loop's


def test_rare_stacks_keep_their_phase() -> None:
    """Forty lines of a model, each seen a little: most of them merge into "in a module", none is lost."""
    ids = FrameIds()
    counts: Counter[RawStack] = Counter({(MAIN, CALL, MODEL._replace(line=line)): 2 + line % 3 for line in range(40)})
    counts[(MAIN, STEP)] = 50
    counts[(MAIN, FETCH)] = 1
    listed, lost = most_frequent(counts, 12, ids)
    assert len(listed) <= 12
    assert lost == 0
    assert sum(count for _, count in listed) == counts.total()
    assert dict(listed)[(MAIN, STEP)] == 50
    assert dict(listed)[(MAIN, FETCH)] == 1
    assert dict(listed)[(MAIN, CALL)] > 50


def test_a_line_of_the_users_is_kept_beside_a_librarys_with_somewhat_more_samples() -> None:
    other = ITEM._replace(function="other")
    counts: Counter[RawStack] = Counter(
        {(MAIN, MODEL): 46, (MAIN, other): 40, (MAIN, ITEM, MODEL): 3, (MAIN, other, PIL): 5}
    )
    left = [((MAIN, MODEL), 46), ((MAIN, other), 45), ((MAIN, ITEM, MODEL), 3)]
    assert most_frequent(counts, 3, FrameIds()) == (left, 0)
    assert most_frequent(counts, 4, FrameIds()) == (counts.most_common(), 0)


def test_what_the_loop_calls_is_kept_as_far_as_there_is_room() -> None:
    run = RawFrame("/home/u/train.py", 44, "run")
    stacks = [(MAIN, run, ITEM._replace(function=f"f{n}"), PIL) for n in range(12)]
    counts: Counter[RawStack] = Counter({stack: n + 1 for n, stack in enumerate(stacks)})
    found, lost = most_frequent(counts, 11, FrameIds())
    assert (dict(found)[MAIN, run], lost) == (1 + 2, 0)
    assert {len(stack): count for stack, count in found} == {2: 3, 3: 3, 4: 8}  # a tenth of 78 samples stays whole


def test_what_takes_much_is_kept_beside_many_rare_calls_of_a_librarys_loop() -> None:
    loop, saves = (MAIN, FIT, EPOCH), PIL._replace(function="save")
    counts: Counter[RawStack] = Counter(
        {(*loop[:-1], EPOCH._replace(line=n % 5), PIL._replace(function=f"f{n}"), PIL_INSIDE): 1 for n in range(40)}
    )
    counts[(*loop, NOTIFY, saves)] = 20
    found, lost = most_frequent(counts, 8, FrameIds())
    assert (dict(found)[(*loop, NOTIFY, saves)], lost) == (20, 0)


def test_a_fold_is_bounded() -> None:
    window = WindowStacks(FrameIds(), ProcessCode())
    total = 0
    for thread in range(10):
        stacks: Counter[RawStack] = Counter(
            {(RawFrame(f"/home/u/{thread}.py", 1, "f"), RawFrame(f"/home/u/{i}.py", 1, "g")): 3 for i in range(30)}
        )
        total += stacks.total()
        window.add_thread(100 + thread, f"t{thread}", stacks, matters=thread == 0)
    window.add_thread(200, "idle", Counter({(SELECT,): 50}), matters=False)
    window.add_thread(201, "no frames", Counter({(): 50}), matters=False)
    assert len(window.stacks) <= PER_PROCESS
    listed = Counter(stack.tid for stack in window.stacks)
    assert listed.pop(100) <= PER_MAIN_THREAD
    assert max(listed.values()) <= PER_THREAD
    assert sum(stack.count for stack in window.stacks) + window.folded == total


CODE = ProcessCode(TargetFiles(None))


def test_frames_are_listed_once_and_bounded(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("first\nsecond\n")
    ids = FrameIds(limit=3)
    here = str(script)
    assert ids.id_of(RawFrame(here, 2, "f"), CODE) == 0
    assert ids.id_of(CALL, CODE) == 1
    assert ids.id_of(RawFrame(here, 2, "f"), CODE) == 0
    assert ids.pop_new_frames() == (
        0,
        [Frame(here, 2, "f", "second", True), Frame(CALL.file, CALL.line, CALL.function)],
    )
    assert ids.pop_new_frames() == (2, [])
    assert [ids.id_of(RawFrame(here, line, "f"), CODE) for line in (1, 8, 9, 1, 8)] == [2, 3, 3, 2, 3]
    first, new = ids.pop_new_frames()
    assert (first, [frame.function for frame in new]) == (2, ["f", "(more frames)"])
    assert ids.id_of(RawFrame(here, 10, "f"), CODE) == 3
    assert ids.pop_new_frames() == (4, [])


def test_a_librarys_line_that_steps_the_users_environment_has_text_where_it_does(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "learns" / "runner.py"
    library.parent.mkdir(parents=True)
    library.write_text("obs, reward, done = self.env.step(act(obs))\nself.bar.step(act(obs))\n")
    own = RawFrame(str(tmp_path / "train.py"), 7, "step")
    act = RawFrame(str(tmp_path / "train.py"), 9, "act")
    ids = FrameIds()
    environment, bar = (RawFrame(str(library), line, "learn") for line in (1, 2))
    stacks = (environment, act), (environment, own), (bar, act), (bar, own), (environment, own, act), (environment, act)
    numbers = [ids.ids_of(stack, CODE) for stack in stacks]
    texts = [frame.source for frame in ids.pop_new_frames()[1]]
    assert [texts[stack[0]] for stack in numbers] == ["", library.read_text().splitlines()[0], "", "", texts[2], ""]
    assert len(texts) == 5  # each once, and the line that steps the environment with its text besides


def us():
    """This process, as a record has it; the files of these tests are younger, and would not be shown."""
    ticks = procfs.start_ticks(os.getpid())
    return process(os.getpid(), start_unix_s=round(start_unix_s(ticks), 2))


def code(file, line):
    return CloseUp().code(str(file), line, us(), time.time())


def test_the_code_around_a_line(tmp_path):
    file = tmp_path / "a.py"
    file.write_bytes(b"".join(b"\tline %d \xff\x1b[31m\n" % n for n in range(1, 31)))
    lines = code(file, 12)
    assert [n for n, _ in lines] == list(range(12 - AROUND_LINES, 12 + AROUND_LINES + 1))
    assert lines[0][1] == "    line 9 \ufffd"
    assert [n for n, _ in code(file, 2)] == [*range(1, 3 + AROUND_LINES)]
    assert [n for n, _ in code(file, 30)][-1] == 30


def test_code_that_was_changed_after_the_start_is_not_shown(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    assert CloseUp().code(str(file), 1, us(), time.time() - 3600) == []
    assert CloseUp().code(str(file), 1, us(), time.time()) == [(1, "x = 1")]
