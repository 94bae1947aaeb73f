"""The commands that install a package beside tuimon, by how tuimon was installed; and versions."""

import importlib.metadata
import importlib.util
import json
import sys

import pytest

from tuimon.installation import install_command, upgrade_command, version_of

PYTHON = "/opt/my env/bin/python"
GIT = {"url": "https://example.com/tuimon.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}}
WHEEL = {"url": "https://example.com/tuimon-0.1.0-py3-none-any.whl", "archive_info": {"hash": "sha256=0"}}
RECEIPT = """\
[tool]
requirements = [
    { name = "tuimon", git = "https://example.com/tuimon.git" },
    { name = "amdsmi", specifier = "<8" },
]
python = "3.11"
entrypoints = [
    { name = "tuimon", install-path = "/home/me/.local/bin/tuimon", from = "tuimon" },
]
"""
ONE_LINE = (
    '[tool]\nrequirements = [{ name = "tuimon", directory = "/x" }]\nentrypoints = [\n    { name = "other" },\n]\n'
)
PIP = f"'{PYTHON}' -m pip install"


@pytest.mark.parametrize(
    ("left", "source", "install", "upgrade", "upgrade_tuimon"),
    [
        ({}, None, f"{PIP} X", f"{PIP} --upgrade X", f"{PIP} --upgrade tuimon"),
        ({}, GIT, f"{PIP} X", f"{PIP} --upgrade X", f"{PIP} --upgrade git+https://example.com/tuimon.git"),
        ({}, CLONE, f"{PIP} X", f"{PIP} --upgrade X", f"{PIP} --upgrade '/home/me/my clone'"),
        ({}, WHEEL, f"{PIP} X", f"{PIP} --upgrade X", f"{PIP} --upgrade {WHEEL['url']}"),
        (
            {"pipx_metadata.json": "{}"},
            GIT,
            "pipx inject tuimon X",
            "pipx runpip tuimon install --upgrade X",
            "pipx upgrade tuimon",
        ),
        (
            {"uv-receipt.toml": RECEIPT},
            GIT,
            "uv tool install --with amdsmi --with X git+https://example.com/tuimon.git",
            "uv tool upgrade tuimon",
            "uv tool upgrade tuimon",
        ),
        (
            {"uv-receipt.toml": ONE_LINE},
            CLONE,
            "uv tool install --with X '/home/me/my clone'",
            "uv tool upgrade tuimon",
            "uv tool upgrade tuimon",
        ),
    ],
)
def test_a_package_comes_in_the_way_in_which_tuimon_came(
    left, source, install, upgrade, upgrade_tuimon, tmp_path, monkeypatch
):
    prefix = tmp_path / "tuimon"
    prefix.mkdir()
    for name, text in left.items():
        (prefix / name).write_text(text)
    packages = tmp_path / "packages" / "tuimon-0.1.0.dist-info"
    packages.mkdir(parents=True)
    (packages / "METADATA").write_text("Metadata-Version: 2.1\nName: tuimon\nVersion: 0.1.0\n")
    if source is not None:
        (packages / "direct_url.json").write_text(json.dumps(source))
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: importlib.metadata.PathDistribution(packages))
    made = install_command("X"), install_command("X", upgrade=True), upgrade_command()
    assert made == (install, upgrade, upgrade_tuimon)


def test_where_there_is_no_pip_uv_installs(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert install_command("X") == "uv pip install --python /venv/bin/python X"


@pytest.mark.parametrize("package", ["tuimon", "py-spy", "nvidia-ml-py", "textual"])
def test_versions_are_those_that_python_knows(package):
    assert version_of(package) == importlib.metadata.version(package)
    assert version_of(f"{package}-of-nobody") == "?"
