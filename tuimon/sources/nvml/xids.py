"""Xid errors of a GPU, read from the driver's events."""

from __future__ import annotations

import contextlib

from tuimon.sources.nvml.library import Handle, NvmlError

#: Most errors read in one poll.
_MOST = 16


class Xids:
    """The critical Xid errors of one GPU; none where the driver does not report them."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._events: object | None = None
        kind = handle.api.nvmlEventTypeXidCriticalError
        supported = handle.query("nvmlDeviceGetSupportedEventTypes")
        if not supported or not supported & kind:
            return
        self._events = handle.call("nvmlEventSetCreate")
        if self._events is None:
            return
        try:
            handle.library.call(handle.api.nvmlDeviceRegisterEvents, handle.raw, kind, self._events)
        except NvmlError:
            self.close()

    def poll(self) -> list[int]:
        """The errors since the last poll; never waits."""
        found: list[int] = []
        while self._events is not None and len(found) < _MOST:
            event = self._handle.call("nvmlEventSetWait_v2", self._events, 0)
            if event is None:  # a timeout: there are no more
                break
            found.append(int(event.eventData))
        return found

    def close(self) -> None:
        """Free the event set."""
        events, self._events = self._events, None
        if events is not None:
            with contextlib.suppress(NvmlError):  # a driver that is gone reports nothing
                self._handle.library.call(self._handle.api.nvmlEventSetFree, events)
