"""User ranges in the app: ``f`` goes on from the phases to them."""

from tests.session.records import steps
from tests.session.samples import profiles
from tests.session.samples.profiles import APP, MAIN
from tests.views.playback import Playback
from tests.views.tui.running_app import running, text
from tuimon.records import RangePlace

PLACE = RangePlace("step", f"{APP}/train.py", "main", 50, 60)


async def test_f_goes_on_from_the_phases_to_the_ranges():
    told = steps(4.0, {"data": 1.0}, count=1, pid=MAIN, range_places=[PLACE])
    async with running(Playback([*profiles.records(3), told])) as (app, pilot):
        await pilot.press("h")
        assert "ranges  step" in text(app, "profile")
        await pilot.press("F")  # back from "all" to the last
        assert app.board.profile.views.phase == "range:step"
        assert "train.py:55" in text(app, "profile") and "train.py:44" not in text(app, "profile")
        await pilot.press("f")
        assert app.board.profile.views.phase is None
        assert "train.py:44" in text(app, "profile")
