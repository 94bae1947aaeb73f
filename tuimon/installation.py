"""Versions of installed packages, and the commands that install one next to this tuimon, the same way."""

from __future__ import annotations

import glob
import os
import re
import shlex
import sys

import msgspec

#: Files that pipx and uv leave in the environment of a tool.
_PIPX_FILE, _UV_FILE = "pipx_metadata.json", "uv-receipt.toml"


class _Source(msgspec.Struct):
    """PEP 610's ``direct_url.json``."""

    url: str
    vcs_info: dict[str, str] | None = None


def install_command(package: str, *, upgrade: bool = False) -> str:
    """``pipx inject tuimon prometheus-client``: adds a package, or brings its newest version.

    uv rebuilds a tool with only the packages named, so the packages already installed with it are named again.
    """
    if _has(_PIPX_FILE):
        name = shlex.quote(os.path.basename(sys.prefix))
        return f"pipx runpip {name} install --upgrade {package}" if upgrade else f"pipx inject {name} {package}"
    if _has(_UV_FILE):
        if upgrade:  # with all that it needs
            return "uv tool upgrade tuimon"
        beside = " ".join(f"--with {name}" for name in [*_beside_tool(), package])
        return f"uv tool install {beside} {_source()}"
    return f"{_pip_install()} {'--upgrade ' if upgrade else ''}{package}"


def upgrade_command() -> str:
    """``pipx upgrade tuimon``: brings a newer tuimon, from the source of this one."""
    if _has(_PIPX_FILE):
        return f"pipx upgrade {shlex.quote(os.path.basename(sys.prefix))}"
    return "uv tool upgrade tuimon" if _has(_UV_FILE) else f"{_pip_install()} --upgrade {_source()}"


def _has(name: str) -> bool:
    return os.path.exists(os.path.join(sys.prefix, name))


def _pip_install() -> str:
    """The install command of this Python's pip, or of uv if the environment has no pip."""
    from importlib.util import find_spec  # noqa: PLC0415  (needed only after a mistake)

    python = shlex.quote(sys.executable)
    return f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"


def _beside_tool() -> list[str]:
    """The packages that uv was told to install with the tool."""
    try:
        with open(os.path.join(sys.prefix, _UV_FILE), encoding="utf-8") as file:
            listed = re.search(r"(?ms)^requirements = \[(?:\n.*?^\]|[^\n]*$)", file.read())
    except (OSError, UnicodeDecodeError):
        return []
    names = re.findall(r'\bname = "([\w.-]+)"', listed[0]) if listed is not None else []
    return [name for name in names if name != "tuimon"]


def _source() -> str:
    """The origin of this tuimon, as pip and uv take it; its name if it came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415

    try:
        found = msgspec.json.decode(distribution("tuimon").read_text("direct_url.json") or "", type=_Source)
    except (PackageNotFoundError, OSError, msgspec.DecodeError, UnicodeDecodeError):
        return "tuimon"
    if found.vcs_info is not None:
        return shlex.quote(f"{found.vcs_info.get('vcs', 'git')}+{found.url}")
    parts = urlsplit(found.url)
    return shlex.quote(unquote(parts.path) if parts.scheme == "file" else found.url)


def version_of(package: str) -> str:
    """Version of an installed package, by the name of its ``.dist-info`` folder; "?" when it has none.

    ``importlib.metadata`` says the same, and takes 2.7 MB, a twelfth of what a run without the screen takes.
    """
    name = package.replace("-", "_")
    for folder in sys.path:
        for info in glob.glob(f"{name}-*.dist-info", root_dir=folder or os.curdir):
            return info.removeprefix(f"{name}-").removesuffix(".dist-info")
    return "?"
