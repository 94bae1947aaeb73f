"""The text that Prometheus reads, by its own client's parser and, where it is installed, by promtool."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from tests.views.metrics.figures import FINDINGS, whole_session
from tuimon.views.metrics import table
from tuimon.views.metrics.prometheus import text_of
from tuimon.views.metrics.snapshot import RankLabels, take


def text() -> str:
    return text_of(take(whole_session(), FINDINGS, RankLabels())).decode()


def test_the_parser_reads_back_what_was_measured() -> None:
    families = {family.name: family for family in text_string_to_metric_families(text())}
    steps = {sample.labels["rank"]: sample.value for sample in families["tuimon_steps"].samples}
    assert steps == {"0": 120.0, "1": 120.0}
    assert families["tuimon_step_seconds"].type == "histogram"
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in families["tuimon_step_seconds"].samples
        if sample.name.endswith("_bucket") and sample.labels["rank"] == "1"
    ]
    assert [bound for bound, _ in buckets] == [*table.STEP_BOUNDS, float("inf")]
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    assert buckets[-1][1] == 120
    power = families["hw_power_watts"].samples[0]
    assert power.labels == {"UUID": "GPU-0", "gpu": "0", "hw_type": "gpu"}


def test_text_from_outside_is_escaped() -> None:
    session = whole_session(1)
    assert session.header is not None
    session.add(type(session.header)(**{**_fields(session.header), "run": 'a"b\\c\nd' * 100}))
    written = text_of(take(session, (), RankLabels())).decode()
    info = [line for line in written.splitlines() if line.startswith("tuimon_run_info")]
    assert len(info) == 1
    family = next(f for f in text_string_to_metric_families(written) if f.name == "tuimon_run_info")
    assert family.samples[0].labels["run"] == ('a"b\\c\nd' * 100)[:128]


def _fields(struct: object) -> dict[str, object]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_mend() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
