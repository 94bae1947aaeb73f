"""Versions are what the packages' own metadata says."""

from importlib import metadata

import pytest

from tuimon.monitor.versions import version_of


@pytest.mark.parametrize("package", ["py-spy", "msgspec", "psutil", "textual", "pytest-asyncio"])
def test_a_version_is_that_of_the_metadata(package: str) -> None:
    assert version_of(package) == metadata.version(package)


def test_what_is_not_installed_has_none() -> None:
    assert version_of("tuimon-of-nobody") == "?"
    assert version_of("py") == "?" or version_of("py") == metadata.version("py")
