"""Terminals of all sizes, fonts and colours; sources that are missing."""

from tests.views import streams
from tests.views.tui.running_app import ALL, running, text, visible
from tuimon.views.tui.terminal_app import Capabilities


async def test_an_inferred_table_says_so():
    async with running(streams.inferred()) as (app, _):
        assert "inferred from stack samples" in app.board.query_one("#phases").border_title
        assert "~" in text(app, "phases") and "not started by tuimon run" in text(app, "phases")
        assert "not captured" in text(app, "output")


async def test_output_scrolls_back_and_counts_what_it_left_out():
    monitor = streams.input_bound(5)
    monitor.output.data = b"".join(b"line %d\n" % i for i in range(200))
    async with running(monitor) as (app, pilot):
        assert "line 199" in text(app, "output")
        app.board.output.focus()
        await pilot.press("home")
        assert "line 0" in text(app, "output") and "line 199" not in text(app, "output")
        await pilot.press("end")
        assert "line 199" in text(app, "output")
        monitor.output.data = b"x" * 79 + b"\n" + b"y" * 5_000_000
        app.tick()
        assert "not shown" in app.board.output.border_title


async def test_resizing_from_huge_to_tiny_and_back():
    async with running(streams.input_bound(30)) as (app, pilot):
        for size in [(250, 80), (80, 24), (40, 10), (39, 9), (20, 3), (1, 1), (100, 30), (120, 40)]:
            await pilot.resize_terminal(*size)
            await pilot.pause()
            tiny = size[0] < 40 or size[1] < 10
            assert app.board.query_one("#small").display is tiny
            assert (visible(app) == set()) is tiny
        assert visible(app) == ALL
        assert "INPUT-BOUND" in text(app, "verdict")


async def test_a_font_without_braille_gets_blocks():
    async with running(streams.gpu_bound(30), capabilities=Capabilities(glyphs="blocks")) as (app, _):
        gpu = app.board.gpu
        drawn = "".join(segment.text for y in range(gpu.content_size.height) for segment in gpu.render_line(y))
        assert "█" in drawn and not any("⠀" <= char <= "⣿" for char in drawn)


async def test_an_ascii_terminal_gets_ascii():
    async with running(streams.input_bound(30), capabilities=Capabilities(glyphs="ascii")) as (app, pilot):
        await pilot.pause()
        drawn = "\n".join(
            "".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()
        )
        assert "INPUT-BOUND" in drawn and drawn.isascii()


async def test_without_colours_the_cursor_is_reversed():
    async with running(streams.input_bound(5), capabilities=Capabilities(colours="none")) as (app, _):
        strip = app.board.threads.render_line(1)
        assert any(segment.style.reverse for segment in strip)
