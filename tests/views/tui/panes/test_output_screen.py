"""Output is played into a terminal: progress bars come out right, garbage comes out harmless."""

import random

import pytest
from rich.cells import cell_len

from tuimon.views.tui.drawing.lines import text_of
from tuimon.views.tui.panes.output_pane import HISTORY_LINES, OutputScreen, broken_lines


def shown(*chunks, count=50):
    screen = OutputScreen()
    for chunk in chunks:
        screen.feed_bytes(chunk)
    return [text_of(row) for row in screen.tail(count)]


def test_colours_are_roles():
    screen = OutputScreen()
    screen.feed_bytes(b"\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mrgb\x1b[0m \x1b[93my\x1b[0m")
    assert [(span.text, span.role) for span in screen.tail(1)[0]] == [
        ("red", "fg:color(1) bold"),
        (" ", ""),
        ("rgb", "fg:#010203"),
        (" ", ""),
        ("y", "fg:color(11)"),
    ]


@pytest.mark.parametrize(
    ("printed", "rows"),
    [
        (b"\r  0%|   | 0/9 [00:00]\r 11%|#  | 1/9 [00:01]", [" 11%|#  | 1/9 [00:01]"]),  # tqdm
        (b"10 %\r20 %\r", ["20 %"]),
        (b"100 %\r7 %  \rdone\r\nafter\n", ["done", "after", ""]),
        (b"loss 0.52\rX", ["Xoss 0.52"]),
        (b"downloading 3 of 9\r\x1b[Kdone", ["done"]),
        (b"downloading\x1b[2K\rdone", ["done"]),
        (b"1/9\x08\x08\x08\r2/9", ["2/9"]),  # Keras
        # a bar of tqdm below another: position=1
        (b"\repochs 0/2\n\rsteps 0/3\x1b[A\n\rsteps 3/3\x1b[A\repochs 1/2", ["epochs 1/2", "steps 3/3"]),
        (b"a\tb", ["a       b"]),
        (b"|\x08/\x08-\x08\\", ["\\"]),
    ],
)
def test_progress_bars_stay_on_their_lines(printed, rows):
    assert shown(printed) == rows
    assert shown(*(printed[at : at + 1] for at in range(len(printed)))) == rows


def test_what_scrolls_out_is_kept_up_to_a_bound():
    screen = OutputScreen()
    screen.feed_bytes(b"".join(b"line %d\n" % i for i in range(3000)))
    assert HISTORY_LINES <= screen.line_count <= HISTORY_LINES + 24
    assert text_of(screen.tail(1, above=1)[0]) == "line 2999"
    assert text_of(screen.tail(1, above=101)[0]) == "line 2899"


#: Titles and strings without an end, character sets, modes, far moves, what is no UTF-8.
GARBAGE = (b"\x1b]0;no end ", b"\x1bP no end ", b"\x0e", b"\x1b(0", b"\x1b%@", b"\x1b[?3h", b"\x1b[20l",
           b"\x1b[?5h", b"\xc2\x9d", b"\x1b[>4;2m", b"\x1b[99999999A", b"\x1b[?1049h", b"\xff\xfe\x00\x07")  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_follows_garbage_is_readable(garbage):
    assert shown(garbage, b"\r\x1b[2K\nafter\n")[-2:] == ["after", ""]


def test_random_bytes_break_nothing():
    chance = random.Random(7)
    screen = OutputScreen()
    for _ in range(150):
        body = bytes(
            chance.choices(b"\x1b[];?0123456789mHJKABCDhlrPX^_()\x07\x9b\x9d\r\n\t\x08abc\xe6\xbc\xa2\xff", k=60)
        )
        screen.feed_bytes(body)
    for row in screen.tail(200):
        assert all(char.isprintable() for char in text_of(row))


def test_long_lines_are_folded_at_the_cell():
    screen = OutputScreen()
    screen.feed_bytes("漢字漢字ab\n".encode())
    rows = broken_lines(screen.tail(5), 5)
    assert [text_of(row) for row in rows] == ["漢字", "漢字a", "b", ""]
    assert all(cell_len(text_of(row)) <= 5 for row in rows)
