"""The tests run alike wherever they are started: what a shell, a CI or a launcher left behind is taken away."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Iterator

import pytest

#: Of Python, of terminals and of launchers; what a test is about, it sets itself.
_LEFT_BEHIND = (
    *("PYTHONSAFEPATH", "PYTHONOPTIMIZE", "PYTHONWARNINGS", "PYTHONUNBUFFERED", "PYTHONHASHSEED"),
    *("PYTHONDEVMODE", "PYTHONSTARTUP", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING"),
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID"),
    *("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported or started that would inherit it."""
    for name in [name for name in os.environ if name.startswith("TUIMON") and not name.startswith("TUIMON_TEST")]:
        del os.environ[name]
    for name in _LEFT_BEHIND:
        os.environ.pop(name, None)
    # ``pytest &`` of a script ignores SIGINT, nohup SIGHUP, and children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(ignored) == signal.SIG_IGN:
            signal.signal(ignored, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _rings_are_freed() -> Iterator[None]:
    """Rings that a test has left in a circle of references go with it: a later test would find them as its own."""
    before = _deleted_rings()
    yield
    if _deleted_rings() - before:
        gc.collect()


def _deleted_rings() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return {path for path in found if path.endswith(".ring (deleted)")}
