"""The terminal app: a board of panes over a Session."""

import sys

# asyncio offers TLS where it can import ssl. Nothing here uses it, and OpenSSL takes 4 of the 55 MB promised.
if "asyncio" not in sys.modules and "ssl" not in sys.modules:
    sys.modules["ssl"] = None  # type: ignore[assignment]
    import asyncio  # noqa: F401

    del sys.modules["ssl"]
