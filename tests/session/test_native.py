"""What threads run below Python, folded: shares by library and phase, of threads and over a span."""

from tests.session.records import native, one_process, session_of, steps, thread
from tuimon.native_code import NativeUse, kind_of
from tuimon.session.session import Session

MAIN, POOL = 100, (101, 102)
OF_MAIN = (("interpreter", "forward", 30), ("torch", "backward", 40), ("torch", "", 10), ("kernel", "backward", 20))


def session() -> Session:
    """A training whose pool waits for the main thread; ten seconds of it."""
    of_pool = ("OpenMP", "backward", 40), ("torch", "backward", 10)
    return session_of(*(native(t, (MAIN, *OF_MAIN), *((tid, *of_pool) for tid in POOL)) for t in (4.0, 8.0)))


def test_shares_are_of_the_cpu_time_the_kernels_included() -> None:
    threads = session().over("recent").of(MAIN).native
    main, both = threads[MAIN], NativeUse.joined(threads[tid] for tid in POOL)
    assert main.by_library() == {"torch": 0.5, "interpreter": 0.3, "kernel": 0.2}
    assert both.by_library() == {"OpenMP": 0.8, "torch": 0.2}
    assert both.share("pool") == 0.8 and both.share("math") == 0.0
    whole = NativeUse.joined(threads.values())
    assert {phase: part.total() for phase, part in whole.by_phase().items()} == {"backward": 320, "forward": 60, "": 20}
    backward = main.within(("backward",))
    assert backward.share("kernel") == 1 / 3 and backward.without("kernel").by_library() == {"torch": 1.0}
    assert main.within(("data",)).share("python") is None
    assert set(threads) == {MAIN, *POOL}


def test_a_span_has_only_what_lies_in_it() -> None:
    run = session_of(
        native(10.0, (MAIN, ("interpreter", "", 40))),
        native(70.0, (MAIN, ("torch", "backward", 40))),
    )
    assert run.over("recent").of(MAIN).native[MAIN].by_library() == {"torch": 1.0}


def test_a_row_of_the_threads_table_is_what_its_threads_run() -> None:
    run = one_process(steps(1.0, {"forward": 50, "backward": 50}), thread(2.0, 0.9))
    run.add(native(4.0, (MAIN, ("CUDA driver", "backward", 30), ("kernel", "backward", 10))))
    (row,) = run.over("recent").of(MAIN).threads
    assert row.native.by_library() == {"CUDA driver": 0.75, "kernel": 0.25}


def test_a_library_in_no_row_of_the_table_is_the_users() -> None:
    assert kind_of("my_ops") == "own" and kind_of("libjpeg") == "codec"
