"""Versions of installed packages."""

from __future__ import annotations


def version_of(package: str) -> str:
    """Version of an installed package; "?" when it is not."""
    from importlib import metadata  # noqa: PLC0415  (tens of milliseconds)

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"
