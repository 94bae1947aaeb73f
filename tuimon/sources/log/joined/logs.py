"""The logs of one run, open: which node each is of, and those of nodes that come later."""

from __future__ import annotations

import contextlib
import resource

from tuimon.errors import NotALog, UnreadableLog
from tuimon.records import Header
from tuimon.sources.log.joined.identity import FrameIds
from tuimon.sources.log.joined.node_log import NodeLog
from tuimon.sources.log.joined.runs import LogHead, Run, read_head
from tuimon.sources.log.reader import log_paths

#: Two logs of one host name are of one machine when their clocks began within this: each boot has its own zero.
_SAME_BOOT_S = 2.0
#: Open files that are left to others.
_FILES = 64


class RunLogs:
    """Opens the logs of a run; ``logs`` has them as their nodes are numbered."""

    def __init__(self, run: Run, folder: str) -> None:
        """``folder``: where others of the run may appear. Raises NotALog; UnreadableLog where none can be read."""
        self.logs: list[NodeLog] = []
        self._unopened: list[UnreadableLog] = []
        self._run = run
        self._folder = folder
        self._frames = FrameIds()
        self._seen = {head.path for head in run.logs}
        for head in sorted(run.logs, key=_order):
            try:
                self._open(head)
            except UnreadableLog as error:
                self._unopened.append(error)
            except NotALog:
                self.close()
                raise
        if not self.logs:
            raise self._unopened[0]

    @property
    def unreadable(self) -> list[UnreadableLog]:
        """Why some of its logs are not read, or no further."""
        return [*self._unopened, *(log.failure for log in self.logs if log.failure is not None)]

    def search(self) -> list[NodeLog]:
        """Open the logs of this run that have appeared since."""
        before = len(self.logs)
        with contextlib.suppress(NotALog):
            for path in log_paths(self._folder):
                if path not in self._seen:
                    self._examine(path)
        return self.logs[before:]

    def close(self) -> None:
        """Close all files."""
        for log in self.logs:
            log.close()

    def _examine(self, path: str) -> None:
        try:
            head = read_head(path)
            if head is None:  # it has just been made: its header is still to come
                return
            self._seen.add(path)
            name = self.logs[0].header.run
            if name is not None and head.header.run == name and head.header.wall_unix_s >= self._run.begun_unix_s:
                self._open(head)
        except NotALog:
            self._seen.add(path)

    def _open(self, head: LogHead) -> None:
        _allow_files(len(self.logs) + 1)
        number, label = self._node_of(head.header)
        self.logs.append(NodeLog(head.path, number, label, self._frames))

    def _node_of(self, header: Header) -> tuple[int, str]:
        """Number and name of a log's node: several logs may be of one, and several nodes may have one name."""
        alike = [log for log in self.logs if log.header.host == header.host]
        for log in alike:
            if abs(_boot_unix_s(log.header) - _boot_unix_s(header)) < _SAME_BOOT_S:
                return log.number, log.label
        namesakes = len({log.number for log in alike})
        number = max((log.number for log in self.logs), default=-1) + 1
        return number, f"{header.host}#{namesakes + 1}" if namesakes else header.host


def _boot_unix_s(header: Header) -> float:
    return header.wall_unix_s - header.t


def _order(head: LogHead) -> tuple[bool, int, str, float]:
    """The nodes as their job numbers them, those without a number by name."""
    node = head.header.node
    return node is None, node or 0, head.header.host, head.header.wall_unix_s


def _allow_files(count: int) -> None:
    """Let this process have so many more files open, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
