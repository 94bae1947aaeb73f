"""``--prometheus`` on the command line."""

import http.client
import re
import sys

import pytest

from tests.cli.command import LEAN, running
from tests.session.records import header, process, steps
from tests.sources.log.literal_log import write
from tests.test_import_hygiene import loaded_by
from tuimon.installation import install_command
from tuimon.records import Exit

WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nsys.exit(3)\n"


def test_an_extra_that_is_missing_is_named_before_anything_starts(call, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("tuimon.views.prometheus", "prometheus_client"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert install_command("prometheus-client") in call("run", "--prometheus", "0", "--", "no-such-program", code=2).err


def test_without_the_options_nothing_of_them_is_loaded():
    statement = (
        "from tuimon.cli.options import add_watching, options_of, parser_of\n"
        "parser = parser_of('run', '')\nadd_watching(parser)\n"
        "assert options_of(parser.parse_args([])).observers == ()\n"
        "import sys\nassert 'tuimon.views.prometheus' not in sys.modules"
    )
    assert not loaded_by(statement) & {"prometheus_client", "http", "wsgiref"}


def test_a_run_is_scraped_and_its_exit_code_is_its_own(tmp_path):
    pytest.importorskip("prometheus_client")
    go = tmp_path / "go"
    words = ("run", "--headless", *LEAN, "--prometheus", "0", "--run", "trial", "--", sys.executable, "-c", WAITS)
    with running(*words, str(go), cwd=tmp_path) as process:
        served = next(line for line in process.stderr if "served at" in line)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", served)
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        go.touch()
        process.stderr.read()
        assert process.wait() == 3
    assert 'mode="run",run="trial"' in text
    assert "tuimon_monitor_cpu_ratio" in text or "tuimon_ranks" in text


def test_view_without_a_terminal_follows_a_log_for_its_metrics(tmp_path, call):
    pytest.importorskip("prometheus_client")
    end = Exit(t=2.0, pid=100, exit_code=0)
    log = write(tmp_path / "run.jsonl", header(), process(), steps(1.0, {"backward": 9}), end)
    assert "10 steps" in call("view", "--headless", "--prometheus", "0", str(log)).err
