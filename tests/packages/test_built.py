"""What a user gets: the wheel, built from the sdist as for a release, installed into an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#]+)|<img src=\"(?!https?:)([^\"]+)")


class Built(NamedTuple):
    """The unpacked sdist, and the environment that the wheel is installed in."""

    sdist: Path
    env: Path

    @property
    def site(self) -> Path:
        return next(self.env.glob("lib/python*/site-packages"))

    def tuimon(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The console script, in a folder and an environment that know nothing of this clone."""
        names = ("PATH", "HOME", "LANG", "TMPDIR")
        return subprocess.run(
            [self.env / "bin" / "tuimon", *words],
            cwd=self.env,
            env={name: os.environ[name] for name in names if name in os.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    sdist = next(path for path in folder.iterdir() if path.is_dir())
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=sdist)
    env = folder / "env"
    venv.create(env, symlinks=True)
    wheel = next(folder.glob("*.whl"))
    pip = (sys.executable, "-m", "pip", "--python", env / "bin" / "python", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    made = Built(sdist, env)
    # dependencies come from the running environment; its editable tuimon does not: a .pth is not read twice over
    (made.site / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def files_of(package: Path) -> set[str]:
    return {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"  # Python 2.7 writes sitecustomize's beside it
    }


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    assert files_of(built.site / "tuimon") == files_of(ROOT / "tuimon")
    assert "py.typed" in files_of(built.site / "tuimon")
    top = {path.name for path in built.site.iterdir() if not path.name.startswith(("tuimon", "behind"))}
    assert top <= {"__pycache__"}


def test_shells_and_man_find_their_files_below_the_environment(built: Built) -> None:
    share = built.env / "share"
    for name in (
        "bash-completion/completions/tuimon",
        "fish/vendor_completions.d/tuimon.fish",
        "man/man1/tuimon.1",
        "zsh/site-functions/_tuimon",
    ):
        assert "completions" in (share / name).read_text(), name


def test_what_the_readme_links_to_is_in_the_sdist(built: Built) -> None:
    pages = [built.sdist / "README.md", *(built.sdist / "docs").rglob("*.md")]
    links = [(page, link or image) for page in pages for link, image in _LINK.findall(page.read_text())]
    assert len(links) > 10
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_the_console_script_has_the_version_of_the_package(built: Built) -> None:
    distribution = PathDistribution(next(built.site.glob("tuimon-*.dist-info")))
    done = built.tuimon("--version")
    assert done.stdout.split()[:2] == ["tuimon", distribution.version]
    assert f'__version__ = "{distribution.version}"' in (built.sdist / "tuimon" / "__init__.py").read_text()


def test_the_metadata_has_urls(built: Built) -> None:
    found = PathDistribution(next(built.site.glob("tuimon-*.dist-info"))).metadata
    assert {url.split(",")[0] for url in found.get_all("Project-URL") or []} >= {"Homepage", "Issues", "Changelog"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("demo",), "INPUT-BOUND"),
        (("demo", "--list"), "STRAGGLER-RANK"),
        (("explain", "--all"), "SPIN-WAIT"),
        (("report", "{log}", "--format", "html"), "<style>"),
    ],
)
def test_commands_find_their_files(built: Built, words: tuple[str, ...], says: str) -> None:
    log = built.site / "tuimon" / "recorded_runs" / "slow_reader.jsonl.gz"
    done = built.tuimon(*(word.format(log=log) for word in words))
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
