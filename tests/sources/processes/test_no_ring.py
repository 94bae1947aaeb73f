"""A training whose ring found no room is reported as that, not as one without torch."""

import subprocess
import sys

from tuimon.records import Notice, Process
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.source import ProcessSource

TRAINING = """
import sys
from tuimon.agent.ring.files import make_ring
make_ring()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_notice_names_the_folder_and_the_fix(tmp_path):
    (tmp_path / "file").touch()
    child = subprocess.Popen(
        [sys.executable, "-c", TRAINING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TUIMON_RING_DIR": str(tmp_path / "file" / "rings"), "PYTHONPATH": ":".join(sys.path), "TUIMON_RUN": "r1"},
    )
    assert child.stdout.readline() == "ready\n"
    source = ProcessSource(ProcessTable(child.pid, "r1"), 1.0)
    records = [record for _ in range(10) for record in source.read()]
    child.communicate()
    (notice,) = (record for record in records if isinstance(record, Notice))
    assert notice.source == "markers"
    assert f"process {child.pid} has no room for its markers ({tmp_path}/file/rings: Not a directory)" in notice.message
    assert "TUIMON_RING_DIR" in notice.hint
    latest = [record for record in records if isinstance(record, Process)][-1]
    assert latest.markers_reason == f"no room for its markers: {tmp_path}/file/rings: Not a directory"
