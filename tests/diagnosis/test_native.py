"""What is said of a run whose threads' code below Python is sampled: shares that were guessed before are measured."""

import pytest

from tests.diagnosis.cpu import BACKWARD, FORWARD, HEALTHY, SIDE, STARVED, run, workers
from tests.diagnosis.gpu import PID, USUAL, findings
from tests.session.records import frames, native, process, stacks, thread, threads
from tuimon.diagnosis.knowledge import BY_LIBRARY
from tuimon.native_code import LIBRARIES, CodeKind, kind_of
from tuimon.records import Frame, Gil, GilCount, GilFunction, ThreadFaults


def use(tid, phase, pid=None, **shares):
    """Samples of a thread in a phase, in percent; libraries by their names, of which ``_`` is a space."""
    code = [(name.replace("_", " "), phase, samples) for name, samples in shares.items()]
    return native(12, (tid, *code), pid=tid if pid is None else pid)


def test_each_row_of_what_is_faster_is_a_library_or_a_kind_of_library():
    names = {library.name for library in LIBRARIES}
    kinds = {kind_of(name) for name in names}
    assert set(BY_LIBRARY) <= names | kinds | {"kernel", "system calls"}
    unpacks: tuple[CodeKind, ...] = ("codec", "compression", "parser")
    assert {*unpacks, "python"} <= set(BY_LIBRARY)


# -- a slow function

#: Shares of the CPU time; what is told of it in the headline, and what to do.
SLOW = [
    ({"interpreter": 67, "NumPy": 25, "libc": 8}, "the interpreter", "vectorise it: the interpreter has 67 % of the"),
    (
        {"libjpeg": 61, "interpreter": 22, "Pillow": 17},
        "libjpeg",
        "decode JPEGs at a part of their size (Image.draft()",
    ),
    ({"libpng": 45, "zlib": 30, "interpreter": 25}, "libpng", "decode once, and cache what is decoded at the size"),
    ({"Pillow": 25, "zlib": 60, "interpreter": 15}, "Pillow", "decode once, and cache what is decoded at the size"),
    ({"zlib": 80, "interpreter": 20}, "zlib", "decompress once, before the training, or store it with lz4 or zstd"),
    ({"JSON parsers": 70, "interpreter": 30}, "JSON parsers", "parse with orjson, or once, before the training"),
    ({"SQLite": 90, "interpreter": 10}, "SQLite", "index the columns that it selects by (CREATE INDEX)"),
    ({"polars": 90, "interpreter": 10}, "polars", "group the rows once, before the loop"),
    ({"pandas": 70, "interpreter": 30}, "pandas", "parse once, before the training, and keep arrays"),
    ({"NumPy": 90, "interpreter": 10}, "NumPy", "keep its results, or give it less to do ... NumPy has 90 %"),
    ({"interpreter": 45, "NumPy": 45, "libc": 10}, "", "vectorise or cache it"),
    ({"torch": 90, "interpreter": 10}, "", "vectorise or cache it"),
    # small operations, but not in a loop
    ({"torch": 60, "libc": 30, "interpreter": 10}, "", "vectorise or cache it"),
    # arrays that are copied, most of them into fresh memory
    ({"libc": 47, "kernel": 36, "NumPy": 17}, "libc", "copy less, as it ... libc has 47 % and the kernel has 36 %"),
    ({"kernel": 46, "libc": 35, "interpreter": 19}, "libc", "copy less, as it moves memory and does not"),
    ({"kernel": 60, "libc": 10, "NumPy": 20, "interpreter": 10}, "the kernel", "keep large arrays and write into them"),
    ({"kernel": 46, "libc": 15, "interpreter": 39}, "the kernel", "ask the system for less, in fewer and larger calls"),
    ({"libc": 30, "kernel": 15, "NumPy": 55}, "NumPy", "keep its results, or give it less to do"),
    ({"kernel": 70, "interpreter": 30}, "the kernel", "ask the system for less, in fewer and larger calls"),
    # a picture is decoded into fresh memory
    ({"kernel": 70, "libjpeg": 20, "Pillow": 10}, "libjpeg", "decode JPEGs at a part of their size"),
]


@pytest.mark.parametrize(("shares", "above_all", "action"), SLOW)
def test_what_workers_run_says_how_their_function_gets_cheaper(shares, above_all, action):
    made = [use(pid, "", **shares) for pid in (201, 202)]
    first, *_ = run(STARVED, *workers(2, 0.96, ([0, 1], 40)), *made, thread(12, 0.05), cpu_count=2)
    cheaper = next(fix.action for fix in first.fixes if "augment() data.py:31" in fix.action)
    assert all(part in cheaper for part in f"cheaper ({action}".split(" ... "))
    assert first.headline.endswith(f", above all in {above_all}" if above_all else " busy")
    user = {name: share for name, share in shares.items() if name != "kernel"}
    library, samples = max(user.items(), key=lambda each: each[1])
    assert ("outside the kernel" in cheaper) is (above_all == "libjpeg" and "kernel" in shares)
    assert first.evidence["library"] == library
    assert first.evidence["library_share"] == pytest.approx(samples / sum(user.values()))
    assert first.evidence["kernel_share"] == (pytest.approx(shares["kernel"] / 100) if "kernel" in shares else None)


@pytest.mark.parametrize(
    ("shares", "headline", "action"),
    [
        (
            {"NumPy": 90, "interpreter": 10},
            ", above all in quantile() of numpy",
            "NumPy has 90 % of the CPU time there",
        ),
        ({"interpreter": 90, "NumPy": 10}, ", above all in quantile() of numpy", "vectorise it: the interpreter has"),
        ({"libjpeg": 90, "NumPy": 10}, ", above all in libjpeg", "decode JPEGs"),
        ({"torch": 90, "NumPy": 10}, " busy", "most of it is quantile() of numpy: cache it, or call it for many items"),
    ],
)
def test_the_function_of_a_package_that_a_line_calls_is_named(shares, headline, action):
    quantile = frames(("/v/lib/python3.11/site-packages/numpy/lib/_function_base_impl.py", 4500, "quantile"), first=60)
    made = [use(pid, "", **shares) for pid in (201, 202)]
    first, *_ = run(STARVED, quantile, *workers(2, 0.96, ([0, 1, 60], 40)), *made, thread(12, 0.05), cpu_count=2)
    assert first.headline.endswith(headline)
    assert action in next(fix.action for fix in first.fixes if "augment() data.py:31" in fix.action)


@pytest.mark.parametrize(("library", "told"), [("NumPy", True), ("OpenBLAS", False)])
def test_products_of_numpy_that_use_no_blas_are_told_by_what_blas_multiplies(library, told):
    product = frames(("data.py", 35, "count", "shared = links[rows] @ links.T", True), first=60)
    made = [use(pid, "", **{library: 90, "interpreter": 10}) for pid in (201, 202)]
    first, *_ = run(STARVED, product, *workers(2, 0.96, ([0, 60], 40)), *made, thread(12, 0.05), cpu_count=2)
    assert first.headline.endswith("above all in products that NumPy computes without BLAS") is told
    assert any("convert both sides to float32" in fix.action for fix in first.fixes) is told


def test_workers_that_wait_do_not_get_faster_by_what_they_run_in_the_little_cpu_time_they_take():
    made = [use(pid, "", interpreter=100) for pid in (201, 202)]
    first, *_ = run(STARVED, *workers(2, 0.03, ([0, 1], 40)), *made, thread(12, 0.05))
    assert any(fix.action.startswith("cache what augment() data.py:31 reads") for fix in first.fixes)
    assert not any("vectorise" in fix.action for fix in first.fixes)


#: CPU, wait for a core, pages a second read from a disk, the kernel's part of the CPU time; whether it is told.
PAGED = [
    (0.15, 0.1, 60, 90, True),  # reads of 6 ms, with what is read ahead
    (0.3, 0.1, 4_000, 60, True),
    (0.12, 0.75, 60, 90, True),  # most of the time it has no core
    (0.15, 0.1, 20, 90, False),  # too few for a wait of most of the time
    (0.9, 0.05, 60, 10, False),  # it computes
    (0.15, 0.1, None, 90, False),  # a log without faults
]


@pytest.mark.parametrize(("cpu", "delay", "pages", "kernel", "told"), PAGED)
def test_a_training_thread_that_waits_for_pages_of_a_file_is_told_so(cpu, delay, pages, kernel, told):
    faults = [ThreadFaults(100, 0.0, pages)] if pages is not None else None
    counted = stacks(12, ([3, 4, 1], 60))
    code = use(100, "data", kernel=kernel, libc=0, interpreter=100 - kernel)
    first, *_ = run(STARVED, counted, code, thread(12, cpu, delay, faults=faults), cpu_count=2)
    assert first.rule == "input_bound"
    assert ("above all in reads of a mapped file" in first.headline) is told
    assert any(f"{pages} pages a second are read" in fix.action.replace(",", "") for fix in first.fixes) is told


def test_pages_read_alone_take_time_as_well():
    """4,000 a second take 0.24 s of the 0.9 s in which the thread has a core, and it computes for 0.12 s."""
    records = thread(12, 0.3, 0.1, faults=[ThreadFaults(100, 0.0, 4_000)]), use(100, "data", kernel=60, interpreter=40)
    first, *_ = run(STARVED, stacks(12, ([3, 4, 1], 60)), *records)
    (cheaper,) = (fix for fix in first.fixes if "MADV_RANDOM" in fix.action)
    assert cheaper.estimated_speedup == pytest.approx(1 / (1 - 0.62 * 0.54 / 0.9), rel=0.01)


MATCH = Frame("net.py", 30, "match", "pairs = [nearest(box) for box in boxes]", True)
PLOTS = frames(
    MATCH,
    ("train.py", 51, "main", "plot(history)", True),
    ("plots.py", 9, "plot", "bars = [height(x) for x in history]", True),
    first=50,
)


def plots(*records, forward=FORWARD):
    sampled = stacks(12, (forward, 30), (BACKWARD, 35), ([51, 52], 25))
    (found,) = (each for each in run(SIDE, PLOTS, sampled, thread(12, 0.99), *records) if each.rule == "side_work")
    return found


def test_so_it_is_of_side_work():
    measured = plots(use(100, "other", interpreter=80, libc=20), use(100, "backward", torch=100))
    assert measured.action == (
        "make plot() plots.py:9 cheaper (vectorise it: the interpreter has 80 % of the CPU time there); or run it less"
        " often"
    )
    assert measured.evidence["library_share"] == pytest.approx(0.8)
    assert plots().action.startswith("run plot() plots.py:9 less often")


#: What runs between an update and a backward, less than half of it side work; whether forward is in torch, what to do.
SHARED = [
    ({"torch": 55, "interpreter": 45}, True, "make plot() plots.py:9 cheaper (vectorise it: the interpreter has"),
    ({"torch": 40, "OpenMP": 20, "libjpeg": 40}, True, "make plot() plots.py:9 cheaper (decode JPEGs at a part of"),
    ({"torch": 80, "interpreter": 20}, True, "run plot() plots.py:9 less often"),
    ({"torch": 55, "interpreter": 45}, False, "run plot() plots.py:9 less often"),  # whose are the samples?
]


@pytest.mark.parametrize(("between", "in_torch", "action"), SHARED)
def test_of_time_without_markers_side_work_has_what_forward_in_torch_leaves(between, in_torch, action):
    told = plots(use(100, "between", **between), forward=FORWARD if in_torch else [8, 50])
    assert told.action.startswith(action)


# -- Python in the model


def model(*records, held=0, line=MATCH, around=None):
    """Of a model whose ``line`` takes most of forward, called by torch's module or ``around``."""
    functions = [GilFunction(100, "net.py", "match", held)]
    gil = Gil(t=12, pid=100, samples=38, threads=[GilCount(100, max(1, held))], functions=functions)
    places, calls = (frames(line, first=50), FORWARD) if around is None else (frames(line, around, first=50), [8, 51])
    sampled = stacks(12, ([*calls, 50], 30), (calls, 10), (BACKWARD, 45))
    findings = run(HEALTHY, places, sampled, gil, thread(12, 0.99), *records)
    return next(each for each in findings if each.rule == "compute_bound_cpu")


@pytest.mark.parametrize(
    ("forward", "held", "cause"),
    [
        ({}, 30, "python"),  # nothing is measured: who holds the GIL decides
        ({}, 0, None),
        ({"torch": 90, "interpreter": 10}, 30, None),
        ({"interpreter": 60, "torch": 40}, 0, "python"),
        ({"SciPy": 60, "torch": 40}, 0, "python"),  # which releases the GIL
    ],
)
def test_python_in_the_model_is_what_the_interpreter_takes_whoever_holds_the_gil(forward, held, cause):
    measured = [use(100, "forward", **forward), use(100, "backward", torch=30)] if forward else []
    found = model(*measured, held=held)
    assert found.cause == cause
    if forward.get("interpreter", 0) == 60:
        assert "; the interpreter has 46 % of the CPU time of both passes" in found.headline
        assert found.evidence["python_share"] == pytest.approx(60 / 130)


#: What forward runs; whether its line is in a loop of the model's, and what to do about it.
HEAVY = [
    ({"torch": 63, "libc": 29, "interpreter": 8}, True, "replace the loop at match() net.py:30 with operations"),
    ({"torch": 63, "libc": 29, "interpreter": 8}, False, "see whether match() net.py:30 has to be computed"),
    ({"torch": 94, "libc": 3, "interpreter": 3}, True, "see whether match() net.py:30 has to be computed"),
    ({}, True, "see whether match() net.py:30 has to be computed"),
]


@pytest.mark.parametrize(("forward", "loop", "action"), HEAVY)
def test_small_operations_in_a_loop_of_the_model_are_to_be_one(forward, loop, action):
    line = Frame("net.py", 30, "match", "score = alpha + transitions[tag]", True, loop=loop)
    measured = [use(100, "forward", **forward), use(100, "backward", torch=30)] if forward else []
    found = model(*measured, line=line)
    assert any(fix.action.startswith(action) for fix in found.fixes)


@pytest.mark.parametrize(("function", "told"), [("forward", True), ("main", False)])
def test_a_loop_around_functions_of_the_model_is_told_and_one_that_leads_to_backward_is_not(function, told):
    around = Frame("train.py", 40, function, "scores = [match(boxes) for boxes in x]", True, loop=True)
    found = model(use(100, "forward", torch=63, libc=29, interpreter=8), use(100, "backward", torch=30), around=around)
    assert (f"in small operations of the loop at {function}() train.py:40" in found.headline) is told


# -- waits in OpenMP


@pytest.mark.parametrize(("waits", "told"), [(30, True), (5, False)])
def test_operations_that_wait_for_their_threads_speak_against_order(waits, told):
    found = model(use(100, "forward", torch=100 - waits, OpenMP=waits), use(100, "backward", torch=10))
    said = f"{round(95 * waits / 110)} % in OpenMP, which waits for the other threads of an operation"
    assert (said in found.headline) is told
    assert any("torch.set_num_threads" in fix.action for fix in found.fixes) is told


@pytest.mark.parametrize(
    ("waits", "intra_op", "for_core", "told"),
    [(30, 2, 0.0, False), (70, 2, 0.0, True), (30, 8, 0.0, True), (70, 2, 0.4, False)],
    ids=["needed", "two in vain", "eight", "one without a core"],
)
def test_threads_that_wait_less_than_one_of_them_works_are_all_needed(waits, intra_op, for_core, told):
    """Two threads that wait 30 % of their time do 1.4 times the work of one, which would take 1.4 times as long."""
    measured = use(100, "forward", torch=100 - waits, OpenMP=waits), use(100, "backward", torch=10)
    cpu = [thread(t, 1.0 - for_core, for_core) for t in range(1, 13)]
    found = model(*measured, process(t=1.0, intra_op_threads=intra_op), *cpu)
    assert any("fewer threads" in fix.action for fix in found.fixes) is told


@pytest.mark.parametrize(("part", "told"), [(60, True), (12, False)])
def test_a_kernel_at_work_in_the_passes_speaks_against_order(part, told):
    found = model(
        use(100, "forward", torch=100 - part, kernel=part), use(100, "backward", torch=100 - part, kernel=part)
    )
    assert (f"{round(0.95 * part)} % in the kernel" in found.headline) is told
    assert any("strace" in fix.action and "slows the training" in fix.action for fix in found.fixes) is told


#: Faults a second; the kernel's part of the passes, and of what else the thread runs; the line; the least gain.
FAULTS = [
    (400_000, 60, 0, "x = x.exp()", 2.0),  # 400,000 times 1.5 us are 60 % of a core
    (150_000, 60, 0, "x = x.exp()", 1.35),  # 23 %, of 40 % in the kernel: it does something else as well
    (100_000, 60, 0, "x = x.exp()", None),
    (0, 60, 0, "x = x.exp()", None),
    (400_000, 60, 90, "x = x.exp()", 1.6),  # some of the faults are not in the passes
    (400_000, 60, 0, "block.madvise(mmap.MADV_DONTNEED)", None),
    (400_000, 8, 0, "x = x.exp()", None),
]


@pytest.mark.parametrize(("faults", "part", "beside", "line", "gains"), FAULTS)
def test_page_faults_that_explain_the_time_in_the_kernel_gain_it_back(faults, part, beside, line, gains):
    counted = [ThreadFaults(100, faults, 0.0)] if faults else []
    passes = [use(100, name, torch=100 - part, kernel=part) for name in ("forward", "backward")]
    other = use(100, "other", interpreter=100 - beside, kernel=beside)
    found = model(*passes, other, thread(12, 0.99, faults=counted), line=Frame("net.py", 30, "match", line, True))
    assert (found.cause == "page_faults") is (gains is not None)
    assert any("MALLOC_MMAP_MAX_=0" in fix.action for fix in found.fixes) is (gains is not None)
    if gains is not None:
        assert found.best.least == pytest.approx(gains, abs=0.05)
        assert found.best.high is None
        assert f"{faults:,} a second" in found.headline


@pytest.mark.parametrize(
    ("line", "told"), [("c = F.cosine_similarity(z[:, None], z[None])", True), ("c = f(z)", False)]
)
def test_of_page_faults_the_operation_that_may_need_the_memory_is_told(line, told):
    passes = [use(100, name, torch=40, kernel=60) for name in ("forward", "backward")]
    faults = thread(12, 0.99, faults=[ThreadFaults(100, 400_000, 0.0)])
    found = model(*passes, faults, line=Frame("net.py", 30, "match", line, True))
    assert found.cause == "page_faults"
    first = next((fix for fix in found.fixes if fix.action.startswith("for all pairs")), None)
    assert (first is not None) is told
    assert not told or (first is found.best and first.gain is not None)  # most of forward


@pytest.mark.parametrize(
    ("part", "line", "share", "before"),
    [
        (60, "order = scores.argsort(1)", 0.57, ""),
        (20, "order = scores.argsort(1)", 0.3, "30 % of each step is in sorts; 19 %"),
        (60, "c = F.cosine_similarity(z[:, None], z[None])", 0.64, "64 % of each step is in cosine similarities; 57 %"),
    ],
)
def test_a_known_operation_that_takes_more_of_a_step_than_page_faults_stands_before_them(part, line, share, before):
    passes = [use(100, name, torch=100 - part, kernel=part) for name in ("forward", "backward")]
    faults = thread(12, 0.99, faults=[ThreadFaults(100, part * 20_000 // 3, 0.0)])
    found = model(*passes, faults, line=Frame("net.py", 30, "match", line, True))
    assert found.headline.startswith(f"{before or '57 %'} of each step is page faults, ")
    assert found.share_of_step == pytest.approx(share, abs=0.01) and "of forward is in" in found.action


def test_faults_under_another_allocator_are_not_malloc_s():
    passes = use(100, "forward", torch=20, kernel=60, memory_allocator=20)
    found = model(passes, thread(12, 0.99, faults=[ThreadFaults(100, 400_000, 0.0)]))
    assert found.cause is None


@pytest.mark.parametrize(
    ("cpu", "pool", "most", "severity"),
    [
        (0.25, {"torch": 99, "OpenMP": 1}, 1 / 0.99, "info"),  # each core works all the time: fewer threads do the same
        (0.25, {"torch": 40, "OpenMP": 60}, 2.5, "warning"),
        (0.2, {"torch": 99, "OpenMP": 1}, 1.25 / 0.99, "warning"),  # the cores idle for a fifth of the time
        (0.25, {}, None, "warning"),
    ],
)
def test_the_work_of_the_pool_bounds_what_fewer_threads_gain(cpu, pool, most, severity):
    rows = [(100 + n, "python", cpu, "running", 0.6) for n in range(8)]
    code = [(name, "", samples) for name, samples in pool.items()]
    measured = [native(12, *((100 + n, *code) for n in range(1, 8)))] if pool else []
    found = run(HEALTHY, stacks(12, ([1], 9)), threads(12, *rows, cpu_ratio=8 * cpu), *measured)
    finding = next(each for each in found if each.rule == "cpu_oversubscribed")
    assert finding.severity == severity
    assert (finding.best.gain.high if finding.best.gain else None) == (pytest.approx(most) if most else None)


# -- GPUs


def autograd(**shares):
    return use(PID + 1, "backward", pid=PID, **shares)


def test_a_spin_wait_is_measured_where_the_thread_runs_in_the_driver():
    more = [autograd(CUDA_driver=97, torch=3)]
    found = findings("queue_full", *USUAL, util=0.99, cpu=0.3, autograd=0.9, more=more)["spin_wait"]
    said = "100 % CPU in backward() (its own thread), 97 % of it in the driver, is CUDA polling for the GPU, not work"
    assert (found.severity, found.headline) == ("benign", f"{said}: harmless")
    assert found.evidence["driver_share"] == pytest.approx(0.97)


def test_a_thread_that_runs_elsewhere_does_not_poll():
    more = [autograd(torch=80, CUDA_driver=20)]
    assert "spin_wait" not in findings("queue_full", *USUAL, util=0.99, cpu=0.3, autograd=0.9, more=more)


def test_of_launches_that_set_the_pace_the_interpreters_part_is_told():
    more = [use(PID, "forward", interpreter=60, torch=20, CUDA_driver=20), autograd(torch=50, CUDA_driver=50)]
    found = findings("launch_bound", *USUAL, util=0.4, cpu=0.99, more=more)["launch_bound"]
    assert "; the interpreter has 30 % of the CPU time of both passes" in found.headline
    assert found.evidence["python_share"] == pytest.approx(0.3)
    few = [use(PID, "forward", interpreter=10, torch=90), autograd(torch=50, CUDA_driver=50)]
    assert "interpreter" not in findings("launch_bound", *USUAL, util=0.4, cpu=0.99, more=few)["launch_bound"].headline
