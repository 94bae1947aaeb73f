"""The input rule on literal sessions: the finding appears with its cause and place, and abstains where it should."""

import pytest

from tests.diagnosis.cpu import BACKWARD, STARVED, loader, run, sends_views, workers
from tests.diagnosis.gpu import FETCH, IN_FETCH, USUAL, findings
from tests.session.records import frames, header, native, process, stacks, thread, threads
from tests.session.records import session_of as records_of
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.judging import diagnose
from tuimon.records import MachineMemory, MeasuredBatches, Place
from tuimon.threshold import MIN_SAMPLES

TORCH = "/lib/site-packages/torch"
FETCHER = f"{TORCH}/utils/data/_utils/fetch.py"
COLLATES = FETCHER, 57, "fetch", "return self.collate_fn(data)"
FETCHING = ([FETCH, IN_FETCH], 300)


def bound(*more, **facts):
    """The finding of the rule where data takes most of each step."""
    return next(finding for finding in run(STARVED, *more, **facts) if finding.rule == "input_bound")


def gain_of(part, finding):
    """The estimated gain of the fix whose action contains this."""
    return next(fix.estimated_speedup for fix in finding.fixes if part in fix.action)


def test_saturated_workers_without_a_free_core_need_a_cheaper_item():
    loop = stacks(12, ([3, 4], 50))
    busy = thread(12, 0.1, state="waiting")
    first, *_ = run(STARVED, loop, busy, *workers(2, 0.99, ([0, 1], 30), ([0, 2], 10), ([0], 10)))
    assert (first.rule, first.severity, first.cause) == ("input_bound", "critical", "slow_item")
    assert first.share_of_step == pytest.approx(0.62)
    assert [(place.file, place.line) for place in first.where] == [("data.py", 31), ("train.py", 44)]
    assert "62 % of each step" in first.headline and "both workers are 99 % busy" in first.headline
    gained = 1 / 0.38  # no faster than without any wait but for 2 ms to take it over
    assert first.estimated_speedup == pytest.approx(gained, rel=0.05)


@pytest.mark.parametrize(
    ("phases", "trains", "number", "samples", "cores", "set_to", "gain"),
    [
        (STARVED, 0.4, 2, [([0, 1], 40)], 8, 6, 1 / 0.40),  # as many as keep up with the rest of the step
        (STARVED, 0.05, 1, [([0, 1], 10), ([0], 30)], 2, 2, 2),  # the trainer leaves 0.97 of a core
        # two cores for 1.4 cores' work in a step
        ({"data": 60, "forward": 40}, 0.4, 1, [([0, 1], 10), ([0], 90)], 2, 2, 2 / 1.4),
    ],
)
def test_saturated_workers_need_company_on_free_cores(phases, trains, number, samples, cores, set_to, gain):
    waits = thread(12, trains, state="waiting")
    first, *_ = run(phases, waits, *workers(number, 0.99, *samples), cpu_count=cores)
    assert first.cause == "workers_saturated"
    assert f"num_workers={set_to} (now {number})" in first.action
    assert first.estimated_speedup == pytest.approx(gain, rel=0.05)


FETCHES = stacks(12, ([3, 4], 50))
ALIKE = "each costs the same to hand over (this changes the training: retune the learning rate)"


def handed_over(fetch_ms, items_ms, ready_none, *made, more=(), **facts):
    counts = {"wait_ns": int(fetch_ms * 1e8), "ready_fetches": 100, "ready_total": 300, "ready_none": ready_none}
    made = made or [(20, 18 * items_ms, 2 * items_ms, 900.0)] * 2
    return loader(len(made), *made, fetches=100, counts=counts | dict(more), **{"prefetch": 2} | facts)


def test_batches_that_lie_ready_cost_their_handing_over():
    tiny = handed_over(6.2, 1.0, ready_none=5)
    first, *_ = run(STARVED, tiny, FETCHES, *workers(2, 0.1, ([0, 1], 40)))
    assert (first.cause, first.where[0].line) == ("hand_over", 44)
    assert "62 % of each step" in first.headline and "6.2 ms to hand over" in first.headline
    assert first.action == "set num_workers=0 (now 2): handing a batch over takes longer than making it"
    assert first.estimated_speedup == pytest.approx(1 / 0.48, rel=0.02)  # ten batches of 1 ms a step
    (larger,) = first.fixes[1:]
    assert larger.action == f"use larger batches: {ALIKE}"
    assert (larger.estimated_speedup, *larger.gain) == pytest.approx((1 / 0.38, 1 / 0.69, 1 / 0.38), rel=0.05)


@pytest.mark.parametrize(("tensors", "first"), [(169, "join the 169 tensors of a batch"), (24, "use larger batches")])
def test_of_many_tensors_in_a_batch_few_are_to_be_made(tensors, first):
    measured = {"batches": MeasuredBatches(2, 1 << 20, 48, 2, tensors=2 * tensors)}
    many = handed_over(6.2, 8.0, 5, more=measured, batch_size=24, collate=Place("data.py", 9, "collate"))
    found, *_ = run(STARVED, many, FETCHES, *workers(2, 0.1, ([0, 1], 40)))
    assert found.action.startswith(first)
    assert found.estimated_speedup > 1.3
    assert found.where[0].function == ("collate" if tensors == 169 else "main")


@pytest.mark.parametrize(("busy_cores", "low"), [(2.0, 1.0), (1.0, 1 / 0.69)])
def test_waits_of_a_hand_over_may_be_for_cores_that_others_hold(busy_cores, low):
    """Workers that make a batch in 8 ms may not be left out either."""
    memory = MachineMemory(t=12, pid=0, window_s=5.0, busy_cores=busy_cores, stolen_cores=0.0)
    slow, own = handed_over(6.2, 8.0, ready_none=5), thread(12, 0.3)
    receives = frames(("/usr/lib/python3.11/multiprocessing/connection.py", 395, "_recv"), first=30)
    awaits = stacks(12, ([3, 4, 30], 50))
    first = bound(memory, slow, receives, awaits, own, *workers(2, 0.1, ([0, 1], 40)))
    (larger,) = first.fixes
    assert larger.action == f"use larger batches: {ALIKE}"
    assert larger.gain.low == pytest.approx(low, rel=0.02)
    assert larger.gain.high >= 2.0


#: What workers send, and whether it is told.
VIEWS = [
    ({}, True),
    ({"sending_ms": 5.0}, False),  # faster than it could be copied: it was sent before
    ({"sending_ms": 5.0, "whole_kib": 4 << 10}, False),  # for a small part of the time
    ({"ms_per_batch": 300.0}, False),
    ({"whole_kib": None}, False),  # older logs
    ({"whole_kib": 700}, False),
]


@pytest.mark.parametrize(("sent", "told"), VIEWS)
def test_views_that_are_sent_whole_are_to_be_copied(sent, told):
    first = bound(sends_views(**sent), FETCHES, *workers(2, 0.5, ([0], 40)))
    assert ("a worker takes 100 ms to send a batch of 512 KiB, of views into 96 MiB" in first.headline) is told
    assert (first.cause == "hand_over") is told
    assert ("in __getitem__() data.py:31, with clone()" in first.action) is told
    assert not told or (first.where[0].line, first.best.low, first.best.most) == (31, None, pytest.approx(2.6, abs=0.1))


def test_workers_that_make_little_beside_their_start_may_as_well_not_be_there():
    """Of 62 ms a step that wait for data 29 start workers, and a batch takes 2 ms to make."""
    little = starts(4, 12.0, 26, made=[(50, 90.0, 10.0, 900.0)] * 2)
    first, *_ = run(STARVED, little, FETCHES, *workers(2, 0.1, ([0, 1], 40)))
    assert "started anew" not in first.headline
    kept, none = first.fixes
    assert "persistent_workers=True" in kept.action
    assert none.action == "set num_workers=0 (now 2): starting workers takes longer than making the batches"
    assert kept.estimated_speedup > none.estimated_speedup > 1.1


def test_slow_workers_that_are_started_for_every_epoch_are_to_be_kept_too():
    first, *_ = run(STARVED, starts(4, 10, 26), *workers(2, 0.99, ([0, 1], 40)))
    assert first.cause == "slow_item"
    assert "starts" in {fix.change.edit for fix in first.fixes if fix.change}


def test_workers_that_have_just_ended_are_told_apart_from_none():
    ended = (process(pid, "worker", ppid=100, t=t, ended=t > 2) for t in (2.0, 3.0) for pid in (201, 202))
    first = bound(*ended, stacks(12, ([3, 4], 50)))
    assert first.cause is None
    assert first.headline.endswith("of each step waits for data: its workers have just ended")


def test_a_batch_that_has_yet_to_be_made_is_no_handing_over():
    first, *_ = run(STARVED, handed_over(3.0, 1.0, ready_none=80), FETCHES, *workers(2, 0.1, ([0, 1], 40)))
    assert first.cause is None


def test_workers_do_not_make_cores():
    """Measured on 2 cores, where a pool of 2 threads trains: 10.2 ms a step, with a worker 13.5, with two 11.7."""
    first, *_ = run(STARVED, threads(12, (100, "python", 1.0, "running"), cpu_ratio=1.8))
    assert first.cause == "no_workers"
    assert gain_of("num_workers=1 (now 0)", first) == pytest.approx(1.1, rel=0.05)


def test_too_few_samples_make_no_verdict():
    split = frames(
        ("train.py", 10, "main", "x = get_batch()", True),
        ("train.py", 11, "main", "loss = model(x)", True),
        (f"{TORCH}/nn/modules/module.py", 99, "_call_impl"),
        ("train.py", 12, "main", "loss.backward()", True),
        ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
        first=20,
    )
    phases = {"between": 60, "backward": 40}
    few = stacks(12, ([20], 1), ([21, 22], 3), ([23, 24], 3))
    assert "input_bound" not in {f.rule for f in run(phases, split, few)}
    many = stacks(12, ([20], 100), ([21, 22], 300), ([23, 24], 300))
    assert "hand_rolled_loader" in {f.cause for f in run(phases, split, many)}


def test_markers_of_the_workers_overrule_what_counters_suggest():
    first, *_ = run(STARVED, loader(2, *[(10, 50, 10, 940)] * 2), *workers(2, 0.99, ([0, 1], 40)))
    assert first.evidence["worker_busy_ratio"] == pytest.approx(0.06)
    assert first.cause is None


def test_collate_is_measured_by_markers_and_named_below_them():
    hook = "/opt/tuimon/agent/worker.py", 9, "tuimon_collate"
    own = frames(hook, ("data.py", 70, "join", "adjacency[a, b] = 1", True), first=30)
    first, *_ = run(STARVED, own, loader(1, (10, 200, 790, 10)), *workers(1, 0.99, ([0, 1], 10), ([0, 30, 31], 40)))
    assert (first.cause, first.where[0].function) == ("slow_collate", "join")
    assert first.estimated_speedup == pytest.approx(1 / 0.40, rel=0.05)


LESS = "return less from the dataset: only"


@pytest.mark.parametrize(
    ("items", "kernel", "library", "first"),
    [
        (400, 90, "torch", LESS),
        (700, 90, "torch", LESS),
        (700, 40, "NumPy", LESS),
        (400, 10, "torch", "make augment()"),
        (900, 90, "torch", "make augment()"),
        (700, 40, "interpreter", "make augment()"),
    ],
)
def test_of_large_samples_that_torch_joins_less_is_to_be_returned(items, kernel, library, first):
    """Torch's collate takes long for them, as their memory is new; a dataset that reads files has none of that."""
    measured = {"batches": MeasuredBatches(2, 96 << 20, 8, 2, tensors=4)}
    code = native(12, (201, ("kernel", "", kernel), (library, "", 100 - kernel)), pid=201)
    made = loader(1, (10, items, 990 - items, 10), counts=measured)
    found, *_ = run(STARVED, made, *workers(1, 0.99, ([0, 1], 40), ([0, 6], 60)), code)
    assert found.cause == ("slow_collate" if items == 400 else "workers_saturated") and found.action.startswith(first)
    assert ("each batch joins 48 MiB of samples" in found.action) is (first == LESS)


@pytest.mark.parametrize(("makes", "cause"), [(COLLATES[-1], "slow_collate"), ("", "no_workers")])
def test_without_hooks_torchs_fetcher_shows_what_collates_whatever_its_name(makes, cause):
    below = frames((FETCHER, 57, "fetch", makes), ("train.py", 29, "mask", "row[column] = 4", True), first=30)
    first, *_ = run(STARVED, below, stacks(12, ([3, 4, 30, 31], 60)))
    assert (first.cause, first.where[0].function) == (cause, "mask")


def test_a_librarys_function_that_collates_is_named_with_the_users_line():
    pads = "/v/lib/python3.11/site-packages/transformers/tokenization_utils_base.py", 708, "as_tensor"
    below = frames((FETCHER, 57, "fetch", COLLATES[-1]), pads, first=30)
    first, *_ = run(STARVED, below, stacks(12, ([3, 4, 30, 31], 60)))
    assert (first.cause, first.where[0].line) == ("slow_collate", 44)
    assert "in as_tensor() tokenization_utils_base.py:708, above all in padding of Python lists" in first.headline
    assert "keep arrays or tensors of each text" in first.action


ITEM, JOIN = Place("data.py", 25, "__getitem__"), Place("data.py", 70, "join")


def test_samples_that_end_in_the_fetch_name_what_it_calls_there():
    """Sampled where the training lets go of the GIL: here after an item, or in torch, which makes tensors of items."""
    torch = frames((FETCHER, 54, "<listcomp>"), COLLATES, first=30)
    made = loader(0, (10, 850, 50, 100), item=ITEM, collate=JOIN)
    first, *_ = run(STARVED, torch, made, stacks(12, ([3, 4, 30], 40), ([3, 4, 31, 6], 40), ([3, 4, 30, 1], 8)))
    assert (first.cause, first.where[0], first.evidence["hot_share"]) == ("no_workers", ITEM, None)
    fixed = next(each for each in first.fixes if each.action.startswith("make __getitem__() data.py:25 cheaper"))
    assert fixed.estimated_speedup == pytest.approx(1 / (1 - 0.62 * 850 / 900), rel=0.01)


@pytest.mark.parametrize("more", [{}, {"item": Place("/lib/site-packages/photos/set.py", 9, "__getitem__")}])
def test_a_data_set_of_a_library_or_of_an_older_log_leaves_the_line_of_the_loop(more):
    own = frames((FETCHER, 54, "<listcomp>"), first=30)
    first, *_ = run(STARVED, own, loader(0, (10, 850, 50, 100), **more), stacks(12, ([3, 4, 30], 80)))
    assert first.where[0].line == 44 and any("whole batches" in fix.action for fix in first.fixes)


def test_a_data_set_of_the_package_that_is_the_program_is_named():
    """As under ``python -m nice.train``."""
    item = Place("/lib/site-packages/nice/set.py", 9, "__getitem__")
    own = frames((FETCHER, 54, "<listcomp>"), ("/lib/site-packages/nice/train.py", 5, "main", "run()", True), first=30)
    first, *_ = run(STARVED, own, loader(0, (10, 850, 50, 100), item=item), stacks(12, ([3, 4, 30], 80)))
    assert first.where[0] == item


def test_a_sampler_is_separated_from_items():
    draws = frames(
        (f"{TORCH}/utils/data/dataloader.py", 800, "_next_index"),
        ("data.py", 90, "__iter__", "yield torch.multinomial(w, 1)", True),
        first=30,
    )
    first, *_ = run(STARVED, draws, stacks(12, ([3, 4, 30, 31], 60), ([3, 4], 10)), *workers(1, 0.02, ([0], 40)))
    assert (first.cause, first.where[0].line) == ("sampler", 90)
    assert first.estimated_speedup == pytest.approx(1 / (1 - 0.62 * 60 / 70))
    assert "num_samples" not in first.action
    of_torch = frames((f"{TORCH}/utils/data/sampler.py", 160, "__iter__"), first=32)
    counted = stacks(12, ([3, 4, 30, 32], 60), ([3, 4], 10), (BACKWARD, 15))
    first, *_ = run(STARVED, draws, of_torch, counted, *workers(1, 0.02, ([0], 40)))
    assert first.cause == "sampler" and "draw only the indices that an epoch takes" in first.action


def test_a_worker_that_hands_batches_over_in_a_thread_of_its_own_makes_none_meanwhile():
    """Without markers: of 55 % of a core that it uses its main thread takes 42 %, for which it makes batches."""
    takes = frames((f"{TORCH}/multiprocessing/reductions.py", 149, "rebuild_storage_fd"), first=30)
    main, sender = (201, "pt_data_worker", 0.42, "waiting"), (202, "python", 0.13, "waiting")
    made = threads(12, main, sender, pid=201, cpu_ratio=0.55)
    fetches = stacks(12, ([3, 4, 30], 75), ([3, 4], 25))
    first, *_ = run(STARVED, takes, fetches, process(201, "worker", ppid=100), made, cpu_count=8)
    assert first.cause == "hand_over"


def test_the_first_moments_bear_no_verdict_that_is_not_plain():
    border = {"data": 12, "forward": 40, "backward": 48}
    assert "input_bound" not in {f.rule for f in run(border, windows=3)}
    assert "input_bound" in {f.rule for f in run(border, windows=8)}
    assert "input_bound" in {f.rule for f in run(STARVED, windows=5)}


def starts(count, start_s, wait_s, end_s=0, made=(), **facts):
    waits = {"wait_ns": wait_s, "start_ns": start_s, "end_ns": end_s}
    counts = {"starts": count, "iter_ns": 0} | {name: int(s * 1e9) for name, s in waits.items()}
    return loader(2, *made, counts=counts, context="spawn", **facts)


def test_workers_that_are_started_for_every_epoch():
    for record in (starts(4, 20.8, 26), starts(4, 10.4, 15.6, end_s=10.4)):
        first, *_ = run(STARVED, record, *workers(2, 0.1, ([0, 1], 40)))
        assert (first.rule, first.cause) == ("input_bound", None)
        assert first.headline.endswith("waits for data: its workers are restarted for every epoch")
        assert "persistent_workers=True" in first.action and "fork" not in first.action
        # the steps that are left are simulated
        assert first.estimated_speedup == pytest.approx(1 / (1 - 0.8 * first.share_of_step), rel=0.005)


@pytest.mark.parametrize(
    ("persistent", "given", "length", "once"),
    [
        (False, 1, 250, True),
        (True, 1, 250, True),
        (False, 1, 1, False),
        (False, 50, 250, False),
        (False, 1, None, False),
    ],
    ids=["next(iter(loader))", "with workers that stay", "an epoch of one batch", "part of an epoch", "unknown"],
)
def test_an_iterator_that_is_made_for_each_batch_is_to_be_made_once(persistent, given, length, once):
    """Of 43 ms that each takes, 10 wait for its first batch: that is left if workers stay."""
    took = {"wait_ns": 160_000_000, "start_ns": 500_000_000, "iter_ns": 340_000_000, "end_ns": 190_000_000}
    counts = took | {"starts": 16, "epochs": 16, "given": given, "length": length}
    begun = loader(2, fetches=16 * given, counts=counts, prefetch=2, context="fork", persistent=persistent)
    first, *_ = run(STARVED, begun, *workers(2, 0.1, ([0, 1], 40)))
    assert first.action.startswith("make the iterator once, outside the loop") == once
    gained = [fix.estimated_speedup for fix in first.fixes]
    kept = [fix.estimated_speedup for fix in first.fixes if "persistent_workers" in fix.action]
    assert len(kept) == (not persistent)
    if once:
        assert first.headline.endswith("a new iterator is made for every batch")
        assert gained == sorted(gained, reverse=True) and all(each < 0.8 * gained[0] for each in kept)


def test_threads_of_workers_that_wait_for_the_cores_are_to_be_fewer():
    """NumPy's BLAS has as many in each worker as there are cores."""
    crowded = []
    for pid in (201, 202):
        crowded += [process(pid, "worker", ppid=100), stacks(12, ([0, 1], 40), pid=pid)]
        rows = [(pid, "pt_data_worker", 0.35, "running", 0.45), (pid + 100, "pt_data_worker", 0.45, "running", 0.5)]
        crowded.append(threads(12, *rows, pid=pid, cpu_ratio=0.8))
    first = bound(FETCHES, *crowded)
    assert first.headline.endswith("with 2 threads in each that wait for 2 cores")
    assert (first.severity, first.where[0].line, first.estimated_speedup) == ("critical", 31, None)
    assert first.action.startswith("have each worker compute in one thread: OMP_NUM_THREADS=1")
    assert "augment() data.py:31 cheaper" in first.fixes[1].action


@pytest.mark.parametrize("record", [starts(4, 5, 26), starts(1, 20, 26), starts(4, 20, 26, persistent=True)])
def test_starts_that_are_little_or_the_first_or_of_persistent_workers(record):
    first, *_ = run(STARVED, record, *workers(2, 0.99, ([0, 1], 40)))
    assert first.rule == "input_bound" and "started anew" not in first.headline


def test_a_wait_for_data_counts_as_far_as_the_gpu_idles():
    found = findings("data_starved", FETCHING, *USUAL)
    first = next(iter(found.values()))
    assert (first.rule, first.where[0].line) == ("input_bound", 40)
    assert first.share_of_step == pytest.approx(0.65, abs=0.03)  # 97 % of the CPU's time
    assert first.headline.startswith("the GPU waits 66 % of each step for data")
    assert first.evidence["gpu_waits_at_most"] == first.share_of_step
    assert "gpu_idle_at_most" not in first.evidence  # it may idle for longer than it waits for data


def found_without_markers(in_fetch: bool, windows: int, fetches: int, others: int, **why: str) -> Finding:
    """The first finding on a loop that makes its batches itself, in a fetch or not, known by samples alone."""
    loop = frames(
        ("train.py", 40, "main", "x, y = next_batch()", True),
        (f"{TORCH}/utils/data/dataloader.py", 700, "__next__"),
        ("train.py", 9, "make", "raw.split()", True),
        ("train.py", 44, "main", "loss = model(x)", True),
        (f"{TORCH}/nn/modules/module.py", 2, "_call_impl"),
        ("train.py", 45, "main", "loss.backward()", True),
        (f"{TORCH}/_tensor.py", 3, "backward"),
    )
    making = [0, 1, 2] if in_fetch else [0, 2]
    sampled = [stacks(t, (making, fetches), ([3, 4], others), ([5, 6], others)) for t in range(1, windows + 1)]
    return diagnose(records_of(header(), process(markers=False, **why), loop, *sampled))[0]


@pytest.mark.parametrize(("in_fetch", "cause"), [(True, "no_workers"), (False, "hand_rolled_loader")])
def test_without_markers_samples_show_whether_there_is_a_loader(in_fetch: bool, cause: str) -> None:
    """Few do, too: of a short run there are fewer than a share of them can be known by."""
    few = found_without_markers(in_fetch, 1, MIN_SAMPLES - 1, 2, markers_reason="started with -I")
    first = found_without_markers(in_fetch, 8, 60, 20)
    assert (few.rule, few.cause) == (first.rule, first.cause) == ("input_bound", cause)
    with_workers = next(fix for fix in first.fixes if fix.change and fix.change.edit == "workers")
    assert with_workers.gain.low == 1.0 < with_workers.gain.high  # of a step of 1 ms, handing a batch over is all of it
    assert first.fixes[0].change.edit == "items"


def stream(*batches, kind="iterable"):
    """A loader whose workers make so many batches each in a second, 50 ms for each; the rest of it they wait."""
    rows = [(made, 48.0 * made, made, 1e3 - 49 * made) for made in batches]
    return loader(len(batches), *rows, fetches=20, counts={"wait_ns": int(0.6e9)}, kind=kind, prefetch=2)


@pytest.mark.parametrize(
    ("batches", "clause", "fewer", "gain"),
    [
        ((20, 0), "all batches come from 1 of 2 workers", "num_workers=1 (now 2)", 2.0),
        ((20, 20, 0), "all batches come from 2 of 3 workers", "num_workers=2 (now 3)", 1.5),
        ((20, 0, 0), "all batches come from 1 of 3 workers", "num_workers=1 (now 3)", 100 / 38),
    ],
)
def test_workers_without_a_part_of_the_stream_idle(batches, clause, fewer, gain):
    own = thread(12, 0.4, state="waiting")
    first, *_ = run(STARVED, stream(*batches), own, *workers(len(batches), 0.9, ([0, 1], 40)), cpu_count=8)
    assert (first.cause, first.evidence["workers"]) == ("idle_workers", sum(map(bool, batches)))
    assert first.evidence["worker_busy_ratio"] == pytest.approx(0.98)
    assert clause in first.headline
    share, *cheaper = first.fixes
    each = f"give each of the {len(batches)} workers its share of the data (get_worker_info(), "
    assert share.action.startswith(each)
    assert fewer in share.action and share.estimated_speedup == pytest.approx(gain, rel=0.1)
    assert [fix.action.partition(" ")[0] for fix in cheaper] == ["make"]  # which may gain more


@pytest.mark.parametrize("facts", [stream(20, 20), stream(20, 8), stream(20, 0, kind="map")])
def test_workers_that_share_the_work_are_all_needed(facts):
    """One that was just started has made no batch of a data set with indices."""
    first, *_ = run(STARVED, facts, *workers(2, 0.9, ([0, 1], 40)), cpu_count=8)
    assert first.cause != "idle_workers" and first.evidence["workers"] == 2


def late(*items_ms, in_order=True):
    """Of ten batches a step one waits 62 ms, as its item is slow; workers make each batch in so many ms on average."""
    made = [(20, 20 * ms, 0.0, 1e3 - 20 * ms) for ms in items_ms]
    held = {"held_ns": int(0.6e9), "held_ms2": 10 * 60.0**2}
    return handed_over(6.2, 0, 0, *made, more=held, in_order=in_order)


@pytest.mark.parametrize("items_ms", [(4.0, 0.1, 0.1, 0.1), (1.0, 1.0, 1.0, 1.0), (2.1, 2.0, 0.01, 0.01)])
def test_the_next_batch_in_order_is_late_while_later_ones_lie_ready(items_ms):
    free = thread(12, 0.3, state="waiting")
    first, *_ = run(STARVED, late(*items_ms), FETCHES, free, *workers(4, 0.05, ([0, 1], 40)), cpu_count=8)
    assert (first.rule, first.cause, first.where[0].line) == ("input_bound", "slow_item", 31)
    assert ": the next batch is 60.0 ms late, while later ones are ready" in first.headline
    assert gain_of("in_order=False", first) == pytest.approx(100 / 38, rel=0.05)
    assert not any("num_workers" in fix.action or "larger batches" in fix.action for fix in first.fixes)


@pytest.mark.parametrize(
    ("items_ms", "cpu"),
    [
        ((30.0, 25.0), 0.5),  # one of two always takes more of the time; a batch takes half of what it is late
        ((47.5, 47.5), 0.95),  # both are busy
        ((35.0, 35.0), 0.7),  # they wait for a core, and one batch is 60 ms late
    ],
)
def test_workers_that_make_batches_alike_hold_back_none(items_ms, cpu):
    first = bound(late(*items_ms), FETCHES, *workers(2, cpu, ([0, 1], 40)), cpu_count=8)
    assert " late" not in first.headline and not any("in_order" in fix.action for fix in first.fixes)


@pytest.mark.parametrize("in_order", [None, False])
def test_an_order_that_is_not_kept_or_cannot_be_left_is_not_advised(in_order):
    first = bound(late(4.0, 0.1, 0.1, 0.1, in_order=in_order), FETCHES, *workers(4, 0.05, ([0, 1], 40)))
    assert not any("in_order" in fix.action for fix in first.fixes)
    assert first.cause == ("hand_over" if in_order is False else "slow_item")
