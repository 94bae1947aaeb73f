"""Which thread and line the hot lines open on."""

import pytest

from tests.recorded_logs import log_path
from tests.views import streams
from tests.views.tui.running_app import running, text
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.reading import fold
from tuimon.records import Place
from tuimon.sources.log.reader import read_log
from tuimon.views.tui.profile.scope import blamed


def finding(file, line):
    return Finding("input_bound", "critical", "waits", where=(Place(file, line, "f"),))


@pytest.mark.parametrize(("line", "kind"), [(20, "worker"), (33, "main")])
def test_it_is_the_worker_or_the_training_thread_whose_samples_pass_there(line, kind):
    session, _ = fold(read_log(str(log_path("h100_seed_dummy_loader_pyspy"))))
    found = blamed(session, [finding("/home/user/train/g02_seed_dummy_loader.py", line)])
    assert found.row.kind == kind and found.place.line == line


async def test_hot_lines_open_there_with_the_code_that_samples_brought():
    monitor = streams.input_bound(5)
    async with running(monitor, (120, 40)) as (app, pilot):
        await pilot.press("h")
        shown = text(app, "profile")
        assert "worker" in shown.splitlines()[0] and "transforms.py:31" in shown.splitlines()[-1]
        assert "31 ▏ out = cv(img, kernel)" in shown


async def test_but_on_the_thread_that_somebody_chose():
    async with running(streams.input_bound(5), (120, 40)) as (app, pilot):
        await pilot.press("down", "up", "h")
        assert "main" in text(app, "profile").splitlines()[0]
