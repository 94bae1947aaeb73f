"""What threads run below Python, folded: shares by library and phase, of threads and over a span."""

from tests.session.records import native, one_process, session_of, steps, thread
from tuimon.native_code import kind_of
from tuimon.session.session import Session

MAIN, POOL = 100, (101, 102)


def session() -> Session:
    """A training whose pool waits for the main thread; ten seconds of it."""
    records = []
    for t in (4.0, 8.0):
        records += [
            native(
                t,
                (MAIN, 1000, ("interpreter", "forward", 30), ("torch", "backward", 40), ("torch", "", 10)),
                *((tid, 500, ("OpenMP", "backward", 40), ("torch", "backward", 10)) for tid in POOL),
            )
        ]
    return session_of(*records)


def test_shares_are_of_the_cpu_time_and_what_is_in_no_sample_is_the_kernels() -> None:
    view = session().over("recent")
    main, both = view.native(MAIN, MAIN), view.native(MAIN, *POOL)
    assert main is not None and both is not None
    assert main.by_library() == {"torch": 0.5, "interpreter": 0.3, "kernel": 0.2}
    assert both.by_library() == {"OpenMP": 0.8, "torch": 0.2}
    assert both.share("pool") == 0.8 and both.share("math") == 0.0
    whole = view.native(MAIN)
    assert whole is not None and whole.samples == 400
    assert {phase: part.samples for phase, part in whole.by_phase().items()} == {
        "backward": 280, "forward": 60, "kernel": 40, "": 20,
    }  # fmt: skip
    backward = main.within(("backward",))
    assert backward.by_library() == {"torch": 1.0} and backward.share("python") == 0.0
    assert main.within(("data",)).share("python") is None
    assert view.native(MAIN, 7) is None and view.native(7) is None


def test_a_span_has_only_what_lies_in_it() -> None:
    run = session_of(
        native(10.0, (MAIN, 400, ("interpreter", "", 40))),
        native(70.0, (MAIN, 400, ("torch", "backward", 40))),
    )
    recent = run.over("recent").native(MAIN)
    assert recent is not None and recent.by_library() == {"torch": 1.0}


def test_a_row_of_the_threads_table_is_what_its_threads_run() -> None:
    run = one_process(steps(1.0, {"forward": 50, "backward": 50}), thread(2.0, 0.9))
    run.add(native(4.0, (MAIN, 400, ("CUDA driver", "backward", 30))))
    (row,) = run.over("recent").threads_of(MAIN)
    assert row.native is not None and row.native.by_library() == {"CUDA driver": 0.75, "kernel": 0.25}


def test_a_library_in_no_row_of_the_table_is_the_users() -> None:
    assert kind_of("my_ops") == "own" and kind_of("libjpeg") == "codec"
