import pytest

from tuimon.cli.main import run_command_line


@pytest.fixture
def call(capsys):
    """Runs a command in this process; gives what it writes to stdout and stderr."""

    def called(*words, code=0):
        capsys.readouterr()
        assert run_command_line(list(words)) == code
        return capsys.readouterr()

    return called
