"""The truth test judges as it should; the runs themselves are ``make truth KIND=hang``."""

from __future__ import annotations

from tests.truth.hang import ALONE, RANKS, alone_cases, odd_lines


def test_each_fault_that_hangs_by_its_own_code_marks_its_line():
    assert all(
        len(odd_lines(name, RANKS)) == 1 for name in ("file", "worker_file", "skip", "stop", "lock", "thread", "owner")
    )
    assert not odd_lines("lost", RANKS)
    cases = alone_cases()
    assert all(len(odd_lines(case.fault, ALONE)) == case.hangs for case in cases)
    assert all(f"\ndef {case.fault}(" in ALONE.read_text() for case in cases if case.fault != "stuck_worker")
    assert sum(case.hangs for case in cases) >= 12 and len({case.fault for case in cases}) == len(cases) >= 28
