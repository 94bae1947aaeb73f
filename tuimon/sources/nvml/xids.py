"""Xid errors of a GPU, as the driver reports them to those who wait for its events."""

from __future__ import annotations

import contextlib

from tuimon.sources.nvml.library import Handle, NvmlError

_MOST = 16


class Xids:
    """The critical Xid errors of one GPU since the last look; empty where the driver does not tell them."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._events: object | None = None
        kind = handle.api.nvmlEventTypeXidCriticalError
        supported = handle.ask("nvmlDeviceGetSupportedEventTypes")
        if not supported or not supported & kind:
            return
        self._events = handle.ask_bare("nvmlEventSetCreate")
        if self._events is None:
            return
        try:
            handle.library.call(handle.api.nvmlDeviceRegisterEvents, handle.raw, kind, self._events)
        except NvmlError:
            self.close()

    def take(self) -> list[int]:
        """What has come; never waits."""
        found: list[int] = []
        while self._events is not None and len(found) < _MOST:
            event = self._handle.ask_bare("nvmlEventSetWait_v2", self._events, 0)
            if event is None:  # a timeout: there are no more
                break
            found.append(int(event.eventData))
        return found

    def close(self) -> None:
        """Wait for events no more."""
        events, self._events = self._events, None
        if events is not None:
            with contextlib.suppress(NvmlError):  # a driver that is gone reports nothing
                self._handle.library.call(self._handle.api.nvmlEventSetFree, events)
