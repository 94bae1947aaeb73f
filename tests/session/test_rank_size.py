"""What is held of one more rank: 64 of them must not take more than a small training does."""

import msgspec

from tests.session.records import MS, process, session_of, steps, threads
from tests.state_size import size_of
from tuimon.records import PhaseTime, RankStep, SlowStep

PHASES = {"data": 1.0, "forward": 40.0, "backward": 50.0, "optimizer": 9.0, "other": 0.5, "between": 0.25}
#: Windows of a rank: those of its first minute.
WINDOWS = 60


def of_rank(pid):
    """Its records, none of which shares an object with any other."""
    yield process(pid=pid, rank=pid - 100, world_size=64)
    for at in range(WINDOWS):
        slowest = SlowStep(10 * at, 120 * MS, [PhaseTime(name, int(ms * MS) + at) for name, ms in PHASES.items()])
        record = steps(float(at), {name: ms + at / 1000 for name, ms in PHASES.items()}, pid=pid, first_index=10 * at)
        times_us = [(10 * at + n, 1000 * n + 1, *range(1000 * at + 10 * n, 1000 * at + 10 * n + 6)) for n in range(4)]
        single = [RankStep(*each) for each in times_us]
        record = msgspec.structs.replace(record, slowest=slowest, rank_steps=single)
        yield msgspec.json.decode(msgspec.json.encode(record), type=type(record))
        yield threads(float(at), (pid, "python", 0.5, "running"), (pid + 1000, "pt_main", 0.1, "waiting"), pid=pid)


def session_after(windows, ranks):
    """Of ranks that have made so many windows of 4 s each; all are alike, and share objects."""
    pids = range(100, 100 + ranks)
    session = session_of(*[process(pid=pid, rank=pid - 100, world_size=ranks) for pid in pids])
    for at in range(windows):
        for pid in pids:
            session.add(steps(4.0 * at, PHASES, pid=pid, first_index=10 * at, window_s=4.0))
    return session


def records_of(ranks):
    return sorted((record for pid in range(100, 100 + ranks) for record in of_rank(pid)), key=lambda record: record.t)


def of_one_more(sized):
    """Bytes by which eight ranks take more than one, a rank."""
    return (sized(records_of(8)) - sized(records_of(1))) / 7


def test_the_picture_of_a_run_takes_little_more_for_one_more_rank():
    assert of_one_more(lambda records: size_of(session_of(*records))) < 48_000


def test_16_ranks_take_little_more_after_two_hours_than_after_ten_minutes():
    after_a_minute, after_ten, after_hours = (size_of(session_after(windows, 16)) for windows in (15, 150, 1800))
    assert after_ten - after_a_minute < 0.6e6
    assert after_hours - after_ten < 0.9e6


def test_the_rank_in_focus_keeps_its_latest_windows_as_they_were_recorded():
    session = session_after(600, 16)

    def in_full(pid):
        return sum(row.end_s - row.begin_s == 4.0 for row in session.step_stats[pid].windows(last=600))

    assert [in_full(pid) for pid in (100, 101)] == [512, 32]
