"""``--prometheus-textfile``: metrics in a file, for the textfile collector of node_exporter."""

from __future__ import annotations

import contextlib
import os
import tempfile

from tuimon.views.metrics.metric import label_value
from tuimon.views.metrics.outlets.exposition import text_of
from tuimon.views.metrics.outlets.outlet import Condition, Periodic
from tuimon.views.metrics.snapshot import Snapshot, Snapshots

#: Seconds between two files: node_exporter is usually scraped every 15 to 60 s.
PERIOD_S = 5.0
#: node_exporter runs as a user of its own. The metrics hold figures, the name of the host and that of the run.
_MODE = 0o644


class Textfile(Periodic):
    """Replaces the file as a whole, so that a reader finds the one before or this one. The end of the run removes it.

    A file that stayed would have node_exporter report a run that is over as if it went on.
    """

    def __init__(self, snapshots: Snapshots, path: str) -> None:
        super().__init__(snapshots, "textfile", PERIOD_S)
        self._path = os.path.abspath(path)
        # node_exporter joins all files of its folder, and drops what two of them have alike
        self._name = label_value(os.path.basename(path).removesuffix(".prom"))
        self._written = False

    def send(self, snapshot: Snapshot) -> Condition:
        """Write the file anew."""
        try:
            replace_file(self._path, text_of(snapshot, (("textfile", self._name),)))
        except OSError as error:
            return Condition(f"{self._path} cannot be written: {error.strerror}", works=False)
        self._written = True
        return Condition(f"written to {self._path}")

    def end(self) -> None:
        """Remove the file, if it is ours."""
        if self._written:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def replace_file(path: str, content: bytes) -> None:
    """Write ``content`` to ``path`` in one go, readable for all. Raises OSError, and then leaves nothing behind."""
    handle, beside = tempfile.mkstemp(prefix=".tuimon-", suffix=".tmp", dir=os.path.dirname(path))
    try:
        with open(handle, "wb") as file:
            os.fchmod(handle, _MODE)
            file.write(content)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
