"""Holds on hooks: while this process runs, and only so long, the hooks that it has brought into trainings stay."""

from __future__ import annotations

import threading

from tuimon.agent.ring.control_words import Command
from tuimon.sources.control.channel import Channel, ControlError, Request, open_channel

#: Between two heartbeats (s).
_PERIOD_S = 1.0


class Holding:
    """Beats for the agents of any number of trainings, on a thread of its own; ends with ``close`` or the process."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Channel, Request]] = {}
        self._changing = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, pid: int) -> bool:
        """Hold the hooks of a process from now on; True if its agent can be given that order."""
        try:
            channel = open_channel(pid)
        except ControlError:
            return False
        return self._order(channel)

    def take_over(self, pid: int) -> bool:
        """Hold what a monitor held that is gone; whether there was such a hold."""
        try:
            channel = open_channel(pid)
        except ControlError:
            return False
        if channel.knows(Command.HOLD) and channel.is_abandoned(Command.HOLD):
            return self._order(channel)
        channel.close()
        return False

    def pids(self) -> set[int]:
        """The processes whose hooks are held."""
        with self._changing:
            return set(self._held)

    def beat(self) -> None:
        """Show all agents that this process is alive; those that hold no longer are let go."""
        with self._changing:
            for pid, (channel, request) in list(self._held.items()):
                request.poll()
                if request.is_over:
                    channel.close()
                    del self._held[pid]

    def close(self) -> None:
        """Hold no more: hooks that have not been withdrawn by then withdraw by themselves."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with self._changing:
            for channel, _ in self._held.values():
                channel.close()
            self._held.clear()

    def _order(self, channel: Channel) -> bool:
        try:
            request = channel.order(Command.HOLD)
        except ControlError:
            channel.close()
            return False
        with self._changing:
            self._held[channel.pid] = channel, request
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat_on, name="tuimon hold", daemon=True)
            self._thread.start()
        return True

    def _beat_on(self) -> None:
        while not self._over.wait(_PERIOD_S):
            self.beat()
