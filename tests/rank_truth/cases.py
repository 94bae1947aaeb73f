"""The trainings that are judged: who is late in which, how, and where; and those in which nobody is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

TRAINING = Path(__file__).with_name("training.py")
#: Where each kind of lateness lies; None: in the process as a whole, whatever its code does.
PHASES = {
    "data": "data",
    "remote": "data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "other",  # after optimizer.step
    "gc": "other",
    "checkpoint": "other",
    "checkpoint_barrier": "other",
    "stopped": None,
    "limited": None,
    "jitter": "forward",
}
_CAUSE = re.compile(r"# <- cause (.*)")


class Case(NamedTuple):
    """One training; ``late``: the rank that is, -1 for none."""

    kind: str
    ranks: int
    late: int = -1
    sync: str = "ddp"
    late_ms: float = 15.0
    width: int = 128

    @property
    def name(self) -> str:
        """Of its log."""
        return f"{self.kind}-{self.ranks}{'' if self.sync == 'ddp' else '-' + self.sync}" + (
            f"-{self.width}" if self.width != 128 else ""
        )

    @property
    def in_turn(self) -> bool:
        """Whether another rank is late in each step."""
        return self.kind == "jitter"

    @property
    def phase(self) -> str | None:
        """The one in which it is late."""
        return PHASES.get(self.kind)

    def command(self, seconds: float) -> list[str]:
        """The training's own arguments."""
        return [
            str(TRAINING), f"--ranks={self.ranks}", f"--late={self.late}", f"--kind={self.kind}", f"--sync={self.sync}",
            f"--late-ms={self.late_ms:g}", f"--width={self.width}", f"--seconds={seconds:g}",
        ]  # fmt: skip


def cause_lines(kind: str) -> set[int]:
    """The lines of the training that make a rank late in this way."""
    numbered = enumerate(TRAINING.read_text().splitlines(), 1)
    return {n for n, text in numbered if (found := _CAUSE.search(text)) is not None and kind in found[1].split()}


#: Eight ranks on two cores exchange gradients for longer: what is planted is more, so that it is worth a warning.
CASES = (
    Case("data", 4, 1),
    Case("remote", 4, 2),
    Case("forward", 2, 1),
    Case("forward", 8, 5, late_ms=40),
    Case("forward", 4, 0, sync="manual", late_ms=40),
    Case("backward", 4, 3),
    Case("optimizer", 4, 3),
    Case("gc", 4, 2),
    Case("checkpoint", 4, 0),
    Case("checkpoint_barrier", 4, 0),
    Case("stopped", 4, 2),
    Case("limited", 4, 1),
    Case("balanced", 2),
    Case("balanced", 4),
    Case("balanced", 8),
    Case("balanced", 4, sync="manual"),
    Case("balanced", 4, width=768),
    Case("jitter", 4),
)
