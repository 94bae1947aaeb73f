"""The folder through which we and the process that we inject into exchange request and answer."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from tuimon.agent.boot import WAITED_FOR

_POLL_S = 0.005


class Answer(Struct, frozen=True):
    """The answer that the process has left: ``status`` as in ``tuimon/agent/late.py``, or "failed"."""

    status: str
    reason: str | None = None


class Request:
    """A private folder with the script to run; ``close`` removes it, and a script that comes later does nothing."""

    def __init__(self, agent: str, place: str, rings: list[str], begin: Literal["begin", "begin_in_thread"]) -> None:
        """``agent``: the agent's folder. ``place``: where ours is made. ``rings``: folders for the ring.

        ``begin``: which function of ``tuimon/agent/boot.py`` the script calls.
        """
        self.folder = tempfile.mkdtemp(prefix="tuimon-inject-", dir=place)
        self.script = os.path.join(self.folder, "start.py")
        self.waited_for = os.path.join(self.folder, WAITED_FOR)  # the main thread waits while it is there
        os.mkdir(self.waited_for, 0o700)
        request = {"folder": self.folder, "agent": agent, "rings": rings}
        with open(os.path.join(agent, "boot.py"), encoding="utf-8") as boot:
            text = boot.read()
        with open(self.script, "w", encoding="utf-8") as script:
            script.write(f"{text}\n\n{begin}({request!r})\n")

    def command(self) -> str:
        """One statement that runs the script and leaves no name behind, for ``PyRun_SimpleString``."""
        path = ascii(self.script)
        run = (
            f"__import__('builtins').exec(compile(__import__('io').open({path}).read(), {path}, 'exec'),"
            " {'__name__': '_tuimon_boot'})"
        )
        return f"try:\n {run}\nexcept BaseException:\n pass\n"

    def answer(self) -> Answer | None:
        """The answer, once there is one."""
        try:
            with open(os.path.join(self.folder, "answer"), encoding="utf-8") as file:
                found = json.load(file)
            return Answer(str(found["status"]), found.get("reason"))
        except (OSError, ValueError, KeyError):
            return None

    def wait(self, timeout_s: float, stop: Callable[[], bool]) -> Answer | None:
        """The answer, or None after ``timeout_s``, or as soon as ``stop()``."""
        until_s = time.monotonic() + timeout_s
        while (answer := self.answer()) is None and time.monotonic() < until_s and not stop():
            time.sleep(_POLL_S)
        return answer

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
