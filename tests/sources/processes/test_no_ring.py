"""A training whose ring found no room is reported as that, not as one without torch."""

import subprocess
import sys

from tuimon.records import Notice, Process
from tuimon.sources.process_table import ProcessTable
from tuimon.sources.processes.source import ProcessSource

TRAINING = """
import sys
{before}
from tuimon.agent.ring.files import make_ring
make_ring()
print("ready", flush=True)
sys.stdin.read()
"""


def followed(tmp_path, before=""):
    """The process, the notice and the latest record of it."""
    (tmp_path / "file").touch()
    child = subprocess.Popen(
        [sys.executable, "-c", TRAINING.format(before=before)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TUIMON_RING_DIR": str(tmp_path / "file" / "rings"), "PYTHONPATH": ":".join(sys.path), "TUIMON_RUN": "r1"},
    )
    assert child.stdout.readline() == "ready\n"
    source = ProcessSource(ProcessTable(child.pid, "r1"), 1.0)
    records = [record for _ in range(10) for record in source.read()]
    child.communicate()
    assert child.returncode == 0
    (notice,) = (record for record in records if isinstance(record, Notice))
    assert notice.source == "markers"
    return child.pid, notice, [record for record in records if isinstance(record, Process)][-1]


def test_a_notice_names_the_folder_and_the_fix(tmp_path):
    pid, notice, latest = followed(tmp_path)
    assert f"process {pid} has no room for its markers ({tmp_path}/file/rings: Not a directory)" in notice.message
    assert "TUIMON_RING_DIR" in notice.hint
    assert latest.markers_reason == f"no room for its markers: {tmp_path}/file/rings: Not a directory"


def test_a_notice_names_the_limit_on_the_size_of_files(tmp_path):
    """At its default SIGXFSZ would end the process at a ring that is larger."""
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))"
    before = f"import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); {limit}"
    pid, notice, latest = followed(tmp_path, before)
    reason = "a ring has 2273280 bytes, files may have 4096 (ulimit -f)"
    assert f"process {pid} has no room for its markers ({reason})" in notice.message
    assert notice.hint == "Start it with a higher limit on the size of files (ulimit -f unlimited)."
    assert latest.markers_reason == f"no room for its markers: {reason}"
