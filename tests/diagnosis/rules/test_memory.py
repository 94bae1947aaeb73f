"""Memory on literal sessions."""

import pytest

from tests.diagnosis.cpu import HEALTHY
from tests.diagnosis.gpu import PID, USUAL, findings
from tests.session.records import (
    by_rule,
    extend,
    frames,
    header,
    loop,
    one_process,
    process,
    reason_by_rule,
    stacks,
    threads,
)
from tuimon.diagnosis.judging import diagnose
from tuimon.diagnosis.verdicts import fold
from tuimon.records import Exit, Frame, Gpu, KeepingLine, Loader, LoaderFacts, MachineMemory, ResourceUse, TorchMemory

GB = 1 << 30


def machine(t=30.0, total=16 * GB, available=8 * GB, **more):
    return MachineMemory(t=t, pid=0, window_s=5.0, total_bytes=total, available_bytes=available, **more)


def growing(pid=100, mb_a_look=100, looks=6):
    return [threads(5.0 * n, pid=pid, rss_bytes=GB + n * mb_a_look * (1 << 20)) for n in range(1, looks + 1)]


def session_of(*records, phases=HEALTHY, **in_steps):
    """Eleven windows."""
    return one_process(loop(11, phases, **in_steps), records)


def found(*records, rule="memory_pressure", **in_steps):
    return by_rule(session_of(*records, **in_steps)).get(rule)


def test_a_machine_with_room_is_not_reported():
    assert found(machine()) is None
    assert found(machine(), *growing(looks=4)) is None


def test_without_figures_of_the_machine_nothing_is_reported():
    assert "memory_pressure" in reason_by_rule(session_of())
    assert found(machine(total=None, available=None)) is None


@pytest.mark.parametrize(("available", "reported"), [(0.06, False), (0.04, True)])
def test_five_percent_left_is_short(available, reported):
    assert (found(machine(available=int(available * 16 * GB))) is not None) == reported


def test_who_grows_is_reported_with_when_memory_is_full():
    finding = found(machine(available=GB // 2), *growing())
    assert finding.severity == "critical"
    assert finding.headline == (
        "the machine has 512 MiB of 16 GiB of memory left: the training (100) grows by 1.17 GiB a minute,"
        " full in a minute"
    )
    assert "detach" in finding.action
    assert finding.evidence["full_in_s"] == pytest.approx(25.6)


def test_swapping_is_reported_and_a_little_is_not():
    finding = found(machine(swap_in_bytes_per_s=2.0 * (1 << 20), swap_out_bytes_per_s=0.0))
    assert (finding.severity, finding.headline) == ("warning", "the machine swaps 2 MiB/s")
    assert found(machine(swap_in_bytes_per_s=1e5, swap_out_bytes_per_s=0.0)) is None


def test_what_grows_is_said_of_memory_if_the_machine_swaps_whatever_else_has_less_left():
    rates = {"swap_in_bytes_per_s": 9e6, "swap_out_bytes_per_s": 0.0}
    swaps = machine(total=4096 * GB, available=2048 * GB, resources=[ResourceUse("/dev/shm", 70, 100)], **rates)
    assert found(swaps, *growing()).headline == (
        "the machine swaps 8.58 MiB/s: the training (100) grows by 1.17 GiB a minute"
    )


# ---- steady growth

MIB = 1 << 20


def session_of_growth(held_mib, *more, loader=None, pid=100):
    """Steps of 100 ms, ten a second, of a process that holds so much, read each two seconds."""
    session = one_process(*more)
    for n, mib in enumerate(held_mib):
        t, held = 2.0 * n + 2, int(mib * MIB)
        extend(session, loop((t - 1, t), HEALTHY), threads(t, pid=pid, rss_bytes=held, own_bytes=held))
        extend(session, loader(t) if loader is not None else ())
    return session


def run_that_holds(held_mib, *more, available=32 << 30, **how):
    """The finding about such a run."""
    session = session_of_growth(held_mib, *more, **how)
    session.add(machine(t=2.0 * len(held_mib), total=64 << 30, available=available))
    return by_rule(session).get("memory_pressure")


def by(mib_each_reading, readings=15):
    return [500 + mib_each_reading * n for n in range(readings)]


def keeping(file, line, *kept):
    """A frame of a file that keeps something at a line."""
    return frames(Frame(file, line, "f", "x", True, keeping=(KeepingLine(*kept),)), t=1.0)


KEEPS = keeping("train.py", 3, 4, "main", "losses.append(loss)")
FILLS_UP = keeping("replay.py", 2, 6, "push", "self.moments.append(moment)", "object")


def test_memory_that_grows_with_each_step_is_said_within_half_a_minute():
    found_at = [n for n in range(1, 16) if run_that_holds(by(86, n)) is not None]
    assert 2 * found_at[0] <= 30
    finding = run_that_holds(by(86))
    assert (finding.severity, finding.cause) == ("warning", "growing")
    assert finding.headline == "the training (100) keeps 4.3 MiB more each step: full in 13 minutes"
    assert finding.evidence["growth_per_step_bytes"] == pytest.approx(4.3 * MIB, rel=0.01)


def test_how_soon_memory_is_full_decides_how_grave_that_is():
    found = [run_that_holds(by(86), available=gib << 30) for gib in (20, 100, 400)]
    assert [finding.severity for finding in found] == ["critical", "warning", "info"]
    assert run_that_holds(by(1, 60), available=400 << 30) is None  # in a week


UNEVEN = [500, 500, 500, 500, *(500 + 12 * n + (9 if n % 3 == 0 else -9) for n in range(9))]


def test_growth_that_is_uneven_is_said_where_the_text_shows_a_line_that_keeps():
    assert run_that_holds(UNEVEN) is None
    finding = run_that_holds(UNEVEN, KEEPS)
    assert (finding.cause, finding.where[0].line) == ("growing", 4)
    assert run_that_holds(UNEVEN, FILLS_UP) is None
    assert run_that_holds([500.0] * 30, KEEPS) is None


@pytest.mark.parametrize(
    "held",
    [
        [500.0] * 30,
        [500 + 300 * (1 - 0.8**n) for n in range(30)],  # a cache that levels off
        [500 + (200 if n > 12 else 0) for n in range(30)],  # one that is loaded at once
        [500 + 40 * (n % 10) for n in range(30)],  # what the garbage collector frees in turn
        [500 + 0.1 * n for n in range(30)],
        [100, 400, 700, 800, *[820] * 20],  # before the first steps, and with them
    ],
)
def test_what_levels_off_or_comes_and_goes_is_no_growth(held):
    assert all(run_that_holds(held[:n]) is None for n in range(1, len(held) + 1))


def test_a_cache_that_is_full_at_last_is_growth_no_more():
    found = [run_that_holds([500 + 20 * min(n, 40) for n in range(end)]) is not None for end in range(30, 60)]
    assert found[:10] == [True] * 10
    assert not any(found[18:])


def test_the_line_that_keeps_is_named():
    finding = run_that_holds(by(86), KEEPS)
    assert [(place.file, place.line) for place in finding.where] == [("train.py", 4)]
    assert finding.action == "keep numbers, not tensors with their graph, in main() train.py:4: .item(), or .detach()"
    finding = run_that_holds(by(86), keeping("plot.py", 1, 9, "draw", "figure = plt.figure()", "figure"))
    assert "plt.close(figure)" in finding.action


def test_the_line_that_keeps_is_named_where_memory_is_short_too():
    finding = run_that_holds(by(86), KEEPS, available=1 << 30)
    assert (finding.cause, finding.severity, finding.where[0].line) == (None, "critical", 4)
    assert ".detach()" in finding.action


def reading(t, end_s):
    """Of a data set that is read in epochs, of which the first ends then."""
    facts = LoaderFacts(dataset="Images", kind="map", workers=0)
    return Loader(t=t, pid=100, number=0, window_s=2.0, role="train", fetches=20, facts=facts, epochs=int(t == end_s))


def test_in_the_first_epoch_it_may_be_a_cache_of_the_data():
    first = run_that_holds(by(86), loader=lambda t: reading(t, 1000.0))
    later = run_that_holds(by(86, 25), loader=lambda t: reading(t, 10.0))
    kept = run_that_holds(by(86), KEEPS, loader=lambda t: reading(t, 1000.0))
    assert [finding.severity for finding in (first, later, kept)] == ["info", "warning", "warning"]


def test_a_worker_that_grows_is_named_with_advice_for_workers():
    finding = run_that_holds(by(86), process(201, "worker", ppid=100), pid=201)
    assert finding.headline.startswith("a DataLoader worker (201) keeps 43 MiB more each second")
    assert "prefetch_factor" in finding.action and not finding.where


def run_on_gpu(allocated_gib, used=40, **more):
    """Ten steps a second, torch's tensors on a GPU of 80 GiB as they were after each two seconds."""
    device = {"index": 2, "uuid": "GPU-a", "name": "A", "memory_total_bytes": 80 << 30, "pids": [100]}
    session = one_process(gpu_uuids=["GPU-a"])
    for n, gib in enumerate(allocated_gib):
        t, held = 2.0 * n + 2, {"allocated_bytes": int(gib * (1 << 30)), "reserved_bytes": 30 << 30}
        extend(session, loop((t - 1, t), HEALTHY), Gpu(t=t, pid=0, memory_used_bytes=used << 30, **device))
        session.add(TorchMemory(t=t, pid=100, device=0, **held))
    session.add(machine(t=2.0 * len(allocated_gib), **more))
    return by_rule(session).get("memory_pressure")


def test_tensors_on_a_gpu_that_grow_with_each_step():
    finding = run_on_gpu([4 + 0.25 * n for n in range(30)])
    assert finding.headline == "the training keeps 13 MiB more each step on GPU 2: full in 8 minutes"
    assert (finding.severity, finding.cause, finding.evidence["device"]) == ("critical", "growing", 0)
    # 40 GiB are not used, and 18.75 of those that torch has reserved
    assert finding.evidence["full_in_s"] == pytest.approx((40 + 30 - 11.25) / 0.125)


def test_the_machine_that_is_full_comes_before_a_gpu_that_will_be():
    finding = run_on_gpu([4 + 0.02 * n for n in range(30)], available=GB // 10)
    assert (finding.severity, finding.cause) == ("critical", None)


def test_the_memory_that_is_full_first_decides_when():
    near = machine(t=30.0, total=64 << 30, available=20 << 30, limit_bytes=100 << 30, limit_used_bytes=92 << 30)
    session = session_of_growth(by(86))
    session.add(near)
    (finding,) = [found for found in diagnose(session) if found.rule == "memory_pressure"]
    assert finding.evidence["left_bytes"] == 8 << 30


# ---- whatever else has a limit


def run_that_fills(name, used, *, every_s, limit=1000, wrote=None, begun=0, more=()):
    """The finding about ten steps a second, and a resource of which so much was used as it was read again and again.

    ``begun``: the readings before the first step.
    """
    session = one_process(*more)
    for n, number in enumerate(used):
        t = every_s * (n + 1)
        rows = [(100, "python", 0.9, "running")]
        held = {"window_s": every_s, "rss_bytes": GB, "own_bytes": GB, "written_bytes": wrote}
        if name == "files":
            held["open_files"] = (int(number), limit)
        if name == "tasks":
            rows.append((101, "python", 0.0, "waiting", None, int(number)))
        uses = [ResourceUse("pids" if name == "tasks" else name, int(number), limit)] if name != "files" else []
        extend(session, loop([t] if n >= begun else [], HEALTHY), threads(t, *rows, **held), machine(t, resources=uses))
    return by_rule(session).get("memory_pressure")


@pytest.mark.parametrize(
    ("name", "used", "how"),
    [
        ("files", [30] * 40, {}),
        ("files", [30 + 20 * (n % 5) for n in range(40)], {}),  # workers of each epoch
        ("files", [30 + 4 * min(n, 9) for n in range(40)], {"begun": 4}),  # logs and shards, each opened once
        ("files", [30 + n // 4 for n in range(40)], {}),  # too few to tell
        ("files", [30 + 300 * (1 - 0.8**n) for n in range(40)], {}),
        ("tasks", [8 + 16 * min(n, 6) for n in range(40)], {}),  # a pool of a hundred, at its first use
        ("tasks", [40 + 30 * (n % 2) for n in range(40)], {}),
        ("/dev/shm", [300 + 200 * (n % 3) for n in range(20)], {"every_s": 5.0, "limit": 900 * MIB}),
        ("/dev/shm", [200 * MIB] * 20, {"every_s": 5.0, "limit": 900 * MIB}),  # batches that workers have ready
        ("/scratch", [900 * GB + n * GB for n in range(20)], {"every_s": 5.0, "limit": 1000 * GB}),  # by others
        ("/scratch", [980 * GB] * 20, {"every_s": 5.0, "limit": 1000 * GB}),  # 20 GB are room enough
        ("/scratch", [n % 2 * GB for n in range(20)], {"every_s": 5.0, "limit": 9 * GB, "wrote": 5 * GB}),
    ],
)
def test_what_is_used_and_given_back_or_used_once_does_not_fill(name, used, how):
    how = {"every_s": 1.0} | how
    assert all(run_that_fills(name, used[:n], **how) is None for n in range(4, len(used) + 1))


KEEPS_FILES = "the training (100) keeps 2 more open files each step: at the limit of 1,024 in a minute"


@pytest.mark.parametrize(
    ("name", "used", "how", "severity", "headline"),
    [
        ("files", [30 + 20 * n for n in range(16)], {"limit": 1024}, "warning", KEEPS_FILES),
        ("files", [30 + 20 * n for n in range(24)], {"limit": 1024}, "critical", KEEPS_FILES),
        (
            *("files", [300 + 30 * n for n in range(24)], {"limit": 1024}, "critical"),
            "the training (100) has 34 of 1,024 open files left: it grows by 1,800 open files a minute,"
            " full in a minute",
        ),
        (
            *("tasks", [10 + 10 * n for n in range(24)], {"limit": 30_000}, "warning"),
            "the training (100) keeps 1 more thread each step: at the limit of 30,000 in 50 minutes",
        ),
        (
            *("/dev/shm", [30 * n * MIB for n in range(8)], {"every_s": 5.0, "limit": 2 * GB}, "critical"),
            "/dev/shm holds 614 KiB more each step: full in 5 minutes",
        ),
        (
            *("/scratch", [GB * (n // 3) for n in range(14)], {"every_s": 5.0, "limit": 100 * GB, "wrote": 350 * MIB}),
            *("warning", "/scratch holds 4 GiB more each minute: full in 24 minutes"),
        ),
    ],
)
def test_what_fills_with_the_steps_is_said_with_when_it_is_full(name, used, how, severity, headline):
    finding = run_that_fills(name, used, **({"every_s": 1.0} | how))
    assert (finding.severity, finding.headline) == (severity, headline)


def test_checkpoints_far_apart_fill_a_disk():
    """One in each minute, of which the last two minutes show two or three."""
    how = {"every_s": 5.0, "limit": 100 * GB, "wrote": GB}
    assert run_that_fills("/scratch", [GB * (n // 12) for n in range(36)], **how) is None
    finding = run_that_fills("/scratch", [GB * (n // 12) for n in range(200)], **how)
    assert (finding.cause, finding.evidence["resource"]) == ("growing", "disk")
    assert finding.evidence["full_in_s"] == pytest.approx(84 * 60, rel=0.1)


def test_the_line_where_threads_stand_is_named():
    stands = frames(("log.py", 9, "flush", "done.wait()", True))
    later = [stacks(t, ([0], 9), tid=101) for t in (10.0, 20.0)]
    used = [10 + 10 * n for n in range(24)]
    finding = run_that_fills("tasks", used, every_s=1.0, limit=30_000, more=(stands, *later))
    assert [(place.file, place.line) for place in finding.where] == [("log.py", 9)]


# ---- runs that memory has ended


def ended(uses=(), *records, kills=0, steps_made=True, **end):
    """The finding about a run that has ended, whose process held 3 GiB of a limit of 4 GiB; ``uses``: of resources."""
    made = loop(11, HEALTHY) if steps_made else []
    held = threads(11.0, rss_bytes=4 * GB, own_bytes=3 * GB, open_files=(1020, 1024))
    memory = machine(t=12.0, limit_bytes=4 * GB, limit_used_bytes=GB, oom_kills=kills, resources=list(uses))
    last = Exit(t=12.1, pid=100, **({"exit_code": 1} | end))
    _, findings = fold([header(), process(), *made, held, *records, memory, last])
    return next((finding for finding in findings if finding.cause in ("out_of_memory", "exhausted")), None)


def test_a_run_that_the_kernel_killed_for_memory():
    finding = ended(kills=1, exit_code=137, signal="SIGKILL")
    assert (finding.rule, finding.severity) == ("memory_pressure", "critical")
    assert finding.headline == (
        "the kernel killed the training because the container's 4 GiB were full: the training (100) held 3 GiB"
    )
    assert ended(kills=1, exit_code=137, signal="SIGKILL", steps_made=False) is not None


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ", "a DataLoader worker"),
        ("RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly", "a DataLoader worker"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "a process of the run"),
        ("RuntimeError: [tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1984", "a process of the run"),
        (None, "a process of the run"),  # of a program on a terminal, tuimon does not read the output
    ],
)
def test_a_child_that_the_kernel_killed_for_memory(line, who):
    assert ended(kills=1, last_line=line).headline.startswith(f"the kernel killed {who} because the ")
    assert ended(kills=0, last_line=line) is None


@pytest.mark.parametrize(
    ("kills", "end"),
    [
        (1, {"exit_code": 0}),
        (1, {"exit_code": 1, "last_line": "KeyError: 'loss'"}),
        (1, {"exit_code": None}),  # attached: how it ended is not known
        (0, {"exit_code": 137, "signal": "SIGKILL"}),
        (None, {"exit_code": 137, "signal": "SIGKILL"}),
    ],
)
def test_other_ends_are_not_for_memory(kills, end):
    assert ended(kills=kills, **end) is None


#: The last lines of outputs, each with the cause of the end and what is said of it, if that is known.
ENDS = """
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79 GiB
    out_of_memory: a GPU had no memory left for 2.50 GiB: OutOfMemoryError
numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array with shape (100000000000,)
    out_of_memory: the machine had no memory left for 745. GiB: _ArrayMemoryError
MemoryError
    out_of_memory: the machine had no memory left: MemoryError
RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory
    out_of_memory: the machine had no memory left: RuntimeError
OSError: [Errno 24] Too many open files: 'a.png'
    exhausted: it reached its limit of open files (1,024): OSError
RuntimeError: received 0 items of ancdata
    exhausted: it reached its limit of open files (1,024): RuntimeError
RuntimeError: can't start new thread
    exhausted: no thread or process could be started (4,096): RuntimeError
OSError: [Errno 28] No space left on device
    exhausted: the disk was full (/scratch, 3 GiB): OSError
RuntimeError: [enforce fail at inline_container.cc:858] . PytorchStreamWriter failed writing file data/3
    exhausted: the disk was full (/scratch, 3 GiB): RuntimeError
RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are
    exhausted: shared memory was full (/dev/shm, 64 MiB): RuntimeError
RuntimeError: unable to write to file </torch_7_9>: No space left on device (28)
    exhausted: shared memory was full (/dev/shm, 64 MiB): RuntimeError
RuntimeError: unable to open shared memory object </torch_7_9> in read-write mode: Too many open files
    exhausted: it reached its limit of open files (1,024): RuntimeError
OSError: [Errno 2] No such file or directory: 'No_space.txt'
    unknown
ValueError: too many values to unpack
    unknown
""".strip().splitlines()


@pytest.mark.parametrize(("line", "said"), zip(ENDS[::2], ENDS[1::2], strict=True))
def test_what_was_used_up_is_named(line, said):
    finding = ended(used_up(), last_line=line, file="data.py", line=7, function="read")
    cause, _, text = said.strip().partition(": ")
    if cause == "unknown":
        assert finding is None
    else:
        assert finding.headline == f"the training ended because {text}"
        assert (finding.cause, finding.severity, finding.where[0].line) == (cause, "critical", 7)
        assert "a GPU" not in text or "smaller" in finding.action


def test_a_bus_error_is_for_shared_memory_only_if_that_was_full():
    assert ended(used_up(), exit_code=135, signal="SIGBUS").headline.startswith(
        "the training ended because shared memory"
    )
    assert ended(used_up(shm=9 * MIB), exit_code=135, signal="SIGBUS") is None


def used_up(shm=63 * MIB):
    uses = [("pids", 4090, 4096), ("/dev/shm", shm, 64 * MIB), ("/", 9 * GB, 90 * GB), ("/scratch", 3 * GB, 3 * GB)]
    return [ResourceUse(*use) for use in uses]


def test_the_line_that_kept_is_named_after_the_end_too():
    finding = ended((), KEEPS, kills=1, exit_code=137)
    assert [(place.file, place.line) for place in finding.where] == [("train.py", 4)]


def test_a_container_that_nothing_empties_is_named_and_may_still_be_a_cache():
    finding = run_that_holds(by(86), FILLS_UP, loader=lambda t: reading(t, 1000.0))
    assert (finding.severity, finding.where[0].line) == ("info", 6)
    assert finding.action == "limit what push() replay.py:6 keeps, as deque(maxlen=N) does, or keep less of it"
    worker = process(201, "worker", ppid=100)
    assert run_that_holds(by(86), worker, FILLS_UP, pid=201).where[0].line == 6
    assert not run_that_holds(by(86), worker, KEEPS, pid=201).where


# ---- forked workers that copy what they share


def run_with_workers(private_mib, own_mib=2000, *, available=32 << 30, context="fork"):
    """The finding about two workers, the private memory of one of which was read each four seconds."""
    facts = LoaderFacts(dataset="Sentences", kind="map", workers=2, context=context)
    workers = [process(pid, "worker", ppid=100) for pid in (201, 202)]
    loader = Loader(t=1.0, pid=100, number=0, window_s=1.0, role="train", fetches=20, facts=facts)
    session = one_process(workers, loader)
    for n, mib in enumerate(private_mib):
        t, own = 4.0 * n + 4, int((own_mib if isinstance(own_mib, int) else own_mib[n]) * MIB)
        held = {"rss_bytes": own, "own_bytes": own, "private_bytes": int(mib * MIB)}
        extend(session, loop((t - 3, t - 2, t - 1, t), HEALTHY), threads(t, pid=201, **held))
    session.add(machine(t=4.0 * len(private_mib), total=64 << 30, available=available))
    return by_rule(session).get("memory_pressure")


COPIES = [26, 60, 77, 105, 176, 268, 298, 321]


def test_forked_workers_that_copy_the_data_set():
    finding = run_with_workers(COPIES)
    assert (finding.cause, finding.severity, finding.evidence["workers"]) == ("copied", "info", 2)
    assert finding.headline == "2 forked workers copy 1.27 GiB of Sentences a minute: up to 3.28 GiB more"
    assert "Sentences" in finding.action and "NumPy array" in finding.action


@pytest.mark.parametrize(
    ("private", "how"),
    [
        (COPIES, {"context": "spawn"}),
        (COPIES, {"own_mib": [2000 + mib for mib in COPIES]}),  # its own memory grows as much
        ([26, 28, 30, 30, 130, 130, 130, 130], {}),  # at once, such as by the garbage collector
        ([26, 60, 90, 120, 130, 131, 131, 131], {}),  # over
        ([11, 13, 13, 14, 14, 14, 15, 15], {}),
    ],
)
def test_workers_that_copy_nothing_more(private, how):
    finding = run_with_workers(private, **how)
    assert finding is None or finding.cause != "copied"


def retried(*counts, first_s=1001.0):
    return [
        TorchMemory(
            t=first_s + 15.0 + n, pid=PID, device=0, allocated_bytes=70, reserved_bytes=78, alloc_retries=count, ooms=2
        )
        for n, count in enumerate(counts)
    ]


def test_retries_after_warm_up_are_reported():
    finding = findings("gpu_bound", *USUAL, util=0.99, more=retried(4, 7))["allocator_retries"]
    assert (finding.severity, finding.evidence["retries"]) == ("warning", 3 + 4)
    assert finding.evidence["caught_ooms"] == 2
    assert "expandable_segments" in finding.action


def test_without_retries_nothing_is_reported():
    assert "allocator_retries" not in findings("gpu_bound", *USUAL)
    assert "allocator_retries" not in findings("gpu_bound", *USUAL, more=retried(0, 0))
