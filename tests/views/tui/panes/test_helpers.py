"""Helpers share rows; what trains and loads keeps its own."""

from tests.session.records import process
from tuimon.session.rows import ThreadRow
from tuimon.views.tui.panes.thread_list import with_helpers_folded

COMPILER = ["python3", "/site-packages/torch/_inductor/compile_worker/__main__.py", "--kind=fork"]


def row(pid, tid, role, cpu=0.1, **more):
    return ThreadRow(pid, tid, role, role, cpu, "waiting", 0.0, None, **more)


def test_compile_workers_are_one_row_whatever_their_number():
    rows = [row(1, 1, "main", 0.9), *(row(pid, pid, "python3", 0.1) for pid in range(10, 26))]
    processes = [process(1), *(process(pid, "other", command=COMPILER) for pid in range(10, 26))]
    main, folded = with_helpers_folded(rows, processes)
    assert main == rows[0]
    assert (folded.role, folded.count, round(folded.cpu_ratio, 3)) == ("compile workers", 16, 1.6)


def test_threads_of_the_drivers_are_one_row_and_a_program_s_own_are_not():
    rows = [row(1, 2, "CUDA driver", None), row(1, 3, "CUDA driver", None), row(1, 4, "thread"), row(1, 5, "thread")]
    driver, *own = with_helpers_folded(rows, [process(1)])
    assert (driver.count, driver.cpu_ratio) == (2, None)
    assert own == rows[2:]
