"""A limit to a process's CPU by a control group, where this user may make one."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 20_000


class Limited:
    """A control group with a share of one core; ``possible`` is False where none can be made."""

    def __init__(self, share: float) -> None:
        v2 = (_ROOT / "cgroup.controllers").exists()
        self._group = (_ROOT if v2 else _ROOT / "cpu") / f"rank-truth-{os.getpid()}"
        quota = int(share * _PERIOD_US)
        try:
            self._group.mkdir()
            if v2:
                (self._group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            else:
                (self._group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (self._group / "cpu.cfs_quota_us").write_text(str(quota))
            self.possible = True
        except OSError:
            self.possible = False

    def add(self, pid: int) -> None:
        """Put a process into it."""
        (self._group / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Remove it, once its processes have ended."""
        if self._group.exists():
            self._group.rmdir()
