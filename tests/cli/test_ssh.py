"""The full screen over a real SSH connection that is cut; where this machine has no sshd, nothing is tested."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.cli.command import LEAN, script
from tests.cli.terminal import Shown, program_on_terminal
from tests.cli.test_run import heard
from tests.cli.watched import TRAINING, recorded
from tests.waiting import until
from tuimon.records import Exit, Notice

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIG = """
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""


class Server(NamedTuple):
    """An sshd of our own."""

    pid: int
    command: list[str]  # of the client; what it is to run follows


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if SSHD is None or shutil.which("ssh-keygen") is None or shutil.which("ssh") is None:
        pytest.skip("no OpenSSH server here")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "sshd.conf").write_text(CONFIG.format(folder=tmp_path))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "sshd.log").open("w") as log:
        sshd = subprocess.Popen(
            [SSHD, "-D", "-e", "-p", str(port), "-f", str(tmp_path / "sshd.conf")], stderr=log, start_new_session=True
        )
    try:
        until(lambda: sshd.poll() is not None or listens(port))
        if sshd.poll() is not None:  # it wants a folder, a user or rights that are not here
            pytest.skip((tmp_path / "sshd.log").read_text())
        options = ("StrictHostKeyChecking=no", f"UserKnownHostsFile={tmp_path}/known", "IdentitiesOnly=yes")
        words = ["ssh", "-tt", "-F", "none", "-p", str(port), "-i", str(tmp_path / "user")]
        for option in options:
            words += ["-o", option]
        yield Server(sshd.pid, [*words, "127.0.0.1"])
    finally:
        for process in sessions(sshd.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        sshd.terminate()
        sshd.wait()


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def sessions(pid: int) -> list[psutil.Process]:
    """The processes of sshd that hold its connections."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child for child in psutil.Process(pid).children(recursive=True) if child.name().startswith("sshd")]
    return []


@pytest.mark.parametrize("cut", ["client", "server"])
def test_the_log_goes_on_when_the_line_is_cut(tmp_path: Path, server: Server, cut: str) -> None:
    words = ("run", *LEAN, "--interval", "0.1", "--log", "run.jsonl", "--", sys.executable, script(tmp_path, TRAINING))
    line = f"cd {tmp_path} && exec env XDG_STATE_HOME={tmp_path}/state {sys.executable} -m tuimon {' '.join(words)}"
    with program_on_terminal([*server.command, line], cwd=tmp_path) as (client, terminal):
        shown = Shown(terminal)
        try:
            until(lambda: shown.has(b"it trains") and heard(tmp_path))
            tuimon = psutil.Process(psutil.Process(int(heard(tmp_path)[0])).ppid())
            if cut == "client":
                client.send_signal(signal.SIGKILL)
            else:
                for process in sessions(server.pid):
                    process.kill()
            log = tmp_path / "run.jsonl"
            until(lambda: any(isinstance(it, Notice) and it.source == "terminal" for it in recorded(log)))
            count = len(recorded(log))
            until(lambda: len(recorded(log)) > count + 10)
            assert tuimon.terminal() is None
        finally:
            (tmp_path / "go").touch()
        until(lambda: [it.exit_code for it in recorded(log) if isinstance(it, Exit)] == [5])
        assert (tmp_path / "result").read_text() == "whole"
        until(lambda: not tuimon.is_running() or tuimon.status() == psutil.STATUS_ZOMBIE)
