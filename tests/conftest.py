"""The tests run alike wherever they are started: what a shell, a CI or a launcher left behind is taken away."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

#: Of Python, of terminals and of launchers; what a test is about, it sets itself.
_LEFT_BEHIND = (
    *("PYTHONSAFEPATH", "PYTHONOPTIMIZE", "PYTHONWARNINGS", "PYTHONUNBUFFERED", "PYTHONHASHSEED"),
    *("PYTHONDEVMODE", "PYTHONSTARTUP", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING"),
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID"),
    *("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
)


def _import_unarmed() -> None:
    """Import tuimon without its hooks: whichever test imports torch first, this process's torch stays plain."""
    os.environ["TUIMON_MARKERS"] = "0"
    import tuimon  # noqa: F401

    del os.environ["TUIMON_MARKERS"]


_import_unarmed()  # before conftests of folders, which import tuimon


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What ``make trust`` came to, in one line."""
    if config.option.markexpr == "trust":
        held, *broken = (len(terminalreporter.getreports(kind)) for kind in ("passed", "failed", "error"))
        terminalreporter.write_line(f"trust: tried {held + sum(broken)}, held {held}")


@pytest.fixture(autouse=True)
def _no_agent_is_left() -> Iterator[None]:
    """Hooks or a ring of this process would be a later test's: the test that leaves them fails."""
    from tuimon.agent import runtime
    from tuimon.agent.ring import files
    from tuimon.agent.torch_compat import rebinding

    yield
    assert (runtime.on, runtime.writer(), rebinding.rebound_names, files.given_directories) == (False, None, [], [])


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., pytest.CaptureResult[str]]:
    """Runs a command in this process; gives what it writes to stdout and stderr."""
    from tuimon.cli.main import run_command_line

    def called(*words: str, code: int = 0) -> pytest.CaptureResult[str]:
        capsys.readouterr()
        assert run_command_line(list(words)) == code
        return capsys.readouterr()

    return called
