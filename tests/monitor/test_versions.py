"""Versions of installed packages."""

from importlib import metadata

import pytest

from tuimon.installation import version_of


@pytest.mark.parametrize("package", ["tuimon", "py-spy", "nvidia-ml-py", "textual"])
def test_they_are_those_that_python_knows(package):
    assert version_of(package) == metadata.version(package)


def test_what_is_not_installed_has_none():
    assert version_of("py-spy-of-nobody") == "?"
