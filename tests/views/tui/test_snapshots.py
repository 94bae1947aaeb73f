"""The whole picture at three sizes, with and without GPUs, hot lines and call tree, as SVG.

After a wanted change: pytest -k the_picture --snapshot-update
"""

from importlib.metadata import version

import pytest
import textual

from tests.views import streams
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.terminal_app import Capabilities

# The SVG is textual's and rich's: other releases draw the same picture in other words.
RECORDED_WITH = ("8.2.8", "15.0.0")
INSTALLED = (textual.__version__, version("rich"))
pytestmark = pytest.mark.skipif(INSTALLED != RECORDED_WITH, reason=f"recorded with textual, rich {RECORDED_WITH}")


@pytest.mark.parametrize(
    ("stream", "size", "keys"),
    [
        ("no_gpu", (80, 24), ()),
        ("input_bound", (120, 40), ()),
        ("eight_gpus", (200, 60), ("d",)),
        ("launch_bound", (80, 24), ()),
        ("gpu_bound", (120, 40), ("d",)),
        ("launch_bound", (200, 60), ()),
        ("profiled", (80, 24), ("h",)),
        ("profiled", (120, 40), ("c", "down", "down")),
    ],
    ids=[
        "80x24",
        "120x40",
        "200x60-light",
        "gpu-80x24",
        "gpu-120x40-light",
        "gpu-200x60",
        "lines-80x24",
        "tree-120x40",
    ],
)
def test_the_picture(snap_compare, stream, size, keys):
    async def one_tick(pilot):
        pilot.app.tick()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    app = TuimonApp(getattr(streams, stream)(), refresh_s=3600, capabilities=Capabilities())
    assert snap_compare(app, terminal_size=size, run_before=one_tick)
