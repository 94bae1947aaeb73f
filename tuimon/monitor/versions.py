"""Versions of installed packages."""

from __future__ import annotations

from importlib import metadata


def version_of(package: str) -> str:
    """Version of an installed package; "?" when it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"
