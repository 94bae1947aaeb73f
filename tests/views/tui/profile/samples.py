"""Samples that the views of the profile are drawn from, and a monitor that plays them."""

from typing import NamedTuple

from tests.session.loop_tree.test_tree import table
from tests.session.samples import profiles
from tests.views.playback import Playback
from tuimon.session.loop_tree.stacks import StackSample
from tuimon.session.samples.sample_profile import SampleProfile

SIZES = [(36, 6), (76, 18), (116, 30), (196, 50)]


class Sample(NamedTuple):
    """Samples of a stack by the numbers of its places."""

    numbers: list[int]
    count: int
    phase: str
    ranges: tuple[str, ...] = ()


def of(*samples: Sample, places=profiles.PLACES):
    known = table(*places)
    return SampleProfile([StackSample(known.stack(s.numbers), s.count, s.phase, ranges=s.ranges) for s in samples])


HOSTILE = of(
    Sample([0, 1], 3, "data"),
    Sample([0], 2, "other"),
    places=(
        ("/tmp/[bold]x[red]\x1b[31m.py", 3, "f[red]\x07", "print('漢字')\x1b[2J" * 40, True),
        ("/tmp/" + "日本語" * 60 + ".py", 7, "関数" * 80, "", True),
    ),
)


DEEP = of(
    Sample([0] + [1, 2] * 250, 90, "forward"),
    Sample([0, 3], 10, "other"),
    places=(("d.py", 1, "main", "walk(0)", True), ("d.py", 5, "walk", "step(n)", True), ("d.py", 9, "step", "", True),
            ("d.py", 30, "log", "", True)),
)  # fmt: skip


def play(seconds=3, later=0):
    records = profiles.records(seconds + later)
    t_end = seconds + 1.0
    now = [record for record in records if record.t <= t_end]
    return Playback(now, later=[[record for record in records if record.t == t_end + n + 1] for n in range(later)])
