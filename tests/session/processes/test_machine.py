"""Which processes grow."""

from tests.session.records import process, threads
from tuimon.records import Threads
from tuimon.session.session import Session

MB = 1_000_000


def grown(sizes_mb, every_s=5.0):
    session = Session()
    for number, size in enumerate(sizes_mb):
        record = threads(0)
        session.add(
            Threads(
                t=number * every_s, pid=100, window_s=1.0, cpu_ratio=1.0, rss_bytes=size * MB, threads=record.threads
            )
        )
    return session


def test_a_process_that_grows_from_look_to_look():
    (growth,) = grown([100, 120, 140, 160, 180]).machine.growing()
    assert (growth.pid, growth.rss_bytes, growth.bytes_per_s) == (100, 180 * MB, 4 * MB)


def test_one_that_goes_up_and_down_does_not_grow():
    assert grown([100, 180, 110, 190, 150]).machine.growing() == []


def test_too_few_looks_tell_nothing():
    assert grown([100, 200, 300]).machine.growing() == []


def test_what_has_ended_does_not_grow():
    session = grown([100, 120, 140, 160, 180])
    session.add(process(100, ended=True))
    assert session.machine.growing() == []


def test_many_looks_a_second_are_thinned():
    session = grown(list(range(100, 400)), every_s=0.1)
    (growth,) = session.machine.growing()
    assert round(growth.bytes_per_s / MB) == 10
