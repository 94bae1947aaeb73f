"""Samples that the views of the profile are drawn from, and a monitor that plays them."""

from typing import NamedTuple

from tests.session.stacks import profiles
from tests.session.stacks.test_tree import table
from tests.views.playback import Playback
from tuimon.session.stacks.samples import Sample, Samples

SIZES = [(36, 6), (76, 18), (116, 30), (196, 50)]


class Counted(NamedTuple):
    """Samples of a stack by the numbers of its places."""

    numbers: list[int]
    count: int
    phase: str
    ranges: tuple[str, ...] = ()


def of(*counted: Counted, places=profiles.PLACES):
    known = table(*places)
    return Samples(tuple(Sample(known.node(c.numbers), c.count, c.phase, ranges=c.ranges) for c in counted))


HOSTILE = of(
    Counted([0, 1], 3, "data"),
    Counted([0], 2, "other"),
    places=(
        ("/tmp/[bold]x[red]\x1b[31m.py", 3, "f[red]\x07", "print('漢字')\x1b[2J" * 40, True),
        ("/tmp/" + "日本語" * 60 + ".py", 7, "関数" * 80, "", True),
    ),
)


DEEP = of(
    Counted([0] + [1, 2] * 250, 90, "forward"),
    Counted([0, 3], 10, "other"),
    places=(("d.py", 1, "main", "walk(0)", True), ("d.py", 5, "walk", "step(n)", True), ("d.py", 9, "step", "", True),
            ("d.py", 30, "log", "", True)),
)  # fmt: skip


def play(seconds=3, later=0):
    records = profiles.records(seconds + later)
    t_end = seconds + 1.0
    now = [record for record in records if record.t <= t_end]
    return Playback(now, later=[[record for record in records if record.t == t_end + n + 1] for n in range(later)])
