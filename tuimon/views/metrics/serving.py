"""The address at which metrics are served."""

from __future__ import annotations

from typing import NamedTuple

from tuimon.text import whole_number

_LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """An address to listen on."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL for a browser, or for Prometheus."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"


def parse_address(text: str) -> Address:
    """``9105``, ``0.0.0.0:9105`` or ``[::1]:9105``; a port alone is on the loopback interface. Raises ValueError."""
    host, _, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or text.strip().startswith(":"):
        raise ValueError(f"{text!r} is not [ADDRESS:]PORT; an IPv6 address stands in brackets")
    number = whole_number(port)
    if number is None or number > 65535:
        raise ValueError(f"{text!r} is not [ADDRESS:]PORT such as 9105 or 0.0.0.0:9105")
    return Address(host or _LOOPBACK, number)
