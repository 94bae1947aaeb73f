"""A process that the agent comes into late, and leaves."""

import pytest

from tuimon.agent import install, late


@pytest.fixture
def rings(tmp_path):
    """Folders for rings, and a process without hooks, before and after."""
    install.uninstall()
    yield [str(tmp_path / "rings")]
    late.withdraw()
