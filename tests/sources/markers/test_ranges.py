"""Where user ranges were opened and closed, told once for each."""

import os
import textwrap

from tests.sources.loop.loop_script import other
from tuimon.agent.ring import layout
from tuimon.proc.target_files import TargetFiles
from tuimon.records import RangePlace
from tuimon.sources.markers.thread_loops import RangeTracker
from tuimon.sources.source_facts import Block, ProcessCode

SOURCE = textwrap.dedent(
    """\
    import tuimon

    def main():
        with tuimon.phase("outer"), open(
            "x"
        ) as file:
            with tuimon.phase("inner"): pass
            file.read()

    @other
    @tuimon.phase("whole")
    def decorated(x):
        return [
            x,
        ]

    async def later():
        async with tuimon.phase("async"):
            await main()
            return 1
    """
)


def source(tmp_path, text=SOURCE):
    file = tmp_path / "train.py"
    file.write_text(text)
    return str(file)


def test_blocks_of_a_source_file(tmp_path):
    file, blocks = source(tmp_path), ProcessCode()
    assert blocks.facts(file).block(4, "main") == Block(4, 8)
    assert blocks.facts(file).block(5, "main") == Block(4, 8)  # Python may name any line of the head
    assert blocks.facts(file).block(7, "main") == Block(7, 7)
    assert blocks.facts(file).block(8, "main") is None
    assert blocks.facts(file).block(10, "decorated") == Block(10, 15)
    assert blocks.facts(file).block(10, "another") is None
    assert blocks.facts(file).block(18, "later") == Block(18, 20)


def test_files_that_have_no_blocks(tmp_path):
    file = source(tmp_path)
    assert ProcessCode(TargetFiles(None, os.path.getmtime(file) - 60)).facts(file).block(4, "main") is None
    assert ProcessCode().facts(str(tmp_path / "gone.py")).block(4, "main") is None
    assert ProcessCode().facts("<ipython-input-3>").block(4, "main") is None
    assert ProcessCode().facts(source(tmp_path, "with x(:\n  pass\n")).block(1, "main") is None
    assert ProcessCode().facts(source(tmp_path, "with x:\n  pass\n" + "y = 1\n" * 100_000)).block(1, "main") is None


def name(text, *place):
    return layout.PLACE_SEPARATOR.join((text, *map(str, place)))


def test_a_place_is_told_once(tmp_path):
    file = source(tmp_path)
    names = {1: name("outer", file, "main", 4), 2: name("pushed", file, "main", 20), 3: name("", file, "main", 25)}
    places = RangeTracker(lambda number: names[number])
    for _ in range(3):
        places.add_place("outer", 1, 0)
        places.add_place("pushed", 2, 3)
    told = [RangePlace("outer", file, "main", 4, 8), RangePlace("pushed", file, "main", 20, 25)]
    assert places.take_places() == told
    places.add_place("outer", 1, 0)
    assert places.take_places() == []


def test_the_tracker_tells_places_of_nested_ranges(tmp_path):
    file = source(tmp_path)
    names = {1: name("outer", file, "main", 4), 2: name("in/ner", file, "main", 7)}
    tracker = RangeTracker(lambda number: names[number])
    tracker.begin(0, 1)
    tracker.begin(1, 2)
    tracker.end(2, 0)
    tracker.end(3, 0)
    tracker.add_stretch(other(0, 9))
    assert sorted(place.path for place in tracker.take_places()) == ["outer", "outer/in\u2215ner"]
    assert sorted(total.path for total in tracker.take_sums()) == ["outer", "outer/in\u2215ner"]
