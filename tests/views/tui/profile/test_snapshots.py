"""Hot lines and call tree as SVG. After a wanted change: pytest -k the_profile --snapshot-update"""

import pytest

from tests.session.stacks import profiles
from tests.views.playback import Playback
from tests.views.tui.test_snapshots import INSTALLED, RECORDED_WITH
from tuimon.views.tui.app import TuimonApp
from tuimon.views.tui.terminal_app import Capabilities

pytestmark = pytest.mark.skipif(INSTALLED != RECORDED_WITH, reason=f"recorded with textual, rich {RECORDED_WITH}")


@pytest.mark.parametrize(
    ("size", "keys"),
    [((80, 24), ("h",)), ((120, 40), ("c", "down", "down"))],
    ids=["lines-80x24", "tree-120x40"],
)
def test_the_profile(snap_compare, size, keys):
    async def one_tick(pilot):
        pilot.app.tick()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    app = TuimonApp(Playback(profiles.records()), refresh_s=3600, capabilities=Capabilities())
    assert snap_compare(app, terminal_size=size, run_before=one_tick)
