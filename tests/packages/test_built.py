"""What a user gets: the wheel, built from the sdist and installed alone; what is in it and what it needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
from importlib.metadata import PackageNotFoundError, PathDistribution, requires
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.packages.advisories import check

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#]+)|<img src=\"(?!https?:)([^\"]+)")


class Built(NamedTuple):
    """The unpacked sdist, and the environment that the wheel is installed in."""

    sdist: Path
    env: Path

    @property
    def site(self):
        return next(self.env.glob("lib/python*/site-packages"))

    def tuimon(self, *words):
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


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
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


def files_of(package):
    return {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"  # Python 2.7 writes sitecustomize's beside it
    }


def test_the_wheel_holds_the_package_and_nothing_else(built):
    assert files_of(built.site / "tuimon") == files_of(ROOT / "tuimon")
    assert "py.typed" in files_of(built.site / "tuimon")
    top = {path.name for path in built.site.iterdir() if not path.name.startswith(("tuimon", "behind"))}
    assert top <= {"__pycache__"}


def test_shells_and_man_find_their_files_below_the_environment(built):
    share = built.env / "share"
    for name in (
        "bash-completion/completions/tuimon",
        "fish/vendor_completions.d/tuimon.fish",
        "man/man1/tuimon.1",
        "zsh/site-functions/_tuimon",
    ):
        assert "completions" in (share / name).read_text(), name


def test_what_the_readme_links_to_is_in_the_sdist(built):
    pages = [built.sdist / "README.md", *(built.sdist / "docs").rglob("*.md")]
    links = [(page, link or image) for page in pages for link, image in _LINK.findall(page.read_text())]
    assert len(links) > 10
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_the_console_script_has_the_version_of_the_package(built):
    distribution = PathDistribution(next(built.site.glob("tuimon-*.dist-info")))
    done = built.tuimon("--version")
    assert done.stdout.split()[:2] == ["tuimon", distribution.version]
    assert f'__version__ = "{distribution.version}"' in (built.sdist / "tuimon" / "__init__.py").read_text()


def test_the_metadata_has_urls(built):
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
def test_commands_find_their_files(built, words, says):
    log = built.site / "tuimon" / "recorded_runs" / "slow_reader.jsonl.gz"
    done = built.tuimon(*(word.format(log=log) for word in words))
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
SETS = PROJECT["optional-dependencies"] | PYPROJECT["dependency-groups"]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LOCKS = {"dev.lock": ("demo", "test"), "demo.lock": ("demo",), "docs.lock": ("docs",), "wild.lock": ("wild",)}


def locked(name):
    """Each requirement of a lock and how many hashes it has."""
    whole = (ROOT / "requirements" / name).read_text().replace("\\\n", " ")
    lines = [line for line in whole.splitlines() if line and not line.startswith("#")]
    return [(Requirement(line.split("--hash", 1)[0].strip()), line.count("--hash=sha256:")) for line in lines]


def applies(requirement, python):
    """Whether it is for this Python on Linux."""
    environment = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": "linux"}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def version(lock, name, python):
    """What a lock installs of a package under one Python on Linux."""
    for requirement, _ in lock:
        if applies(requirement, python) and canonicalize_name(requirement.name) == canonicalize_name(name):
            return Version(next(iter(requirement.specifier)).version)
    return None


def test_every_python_is_a_classifier_and_tested_by_the_workflow():
    prefix = "Programming Language :: Python :: "
    listed = [each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(f"{prefix}3.")]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert listed == list(PYTHONS)
    assert re.findall(r"^ +python: \[(.*)\]$", workflow, re.MULTILINE) == [", ".join(f'"{each}"' for each in PYTHONS)]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_covers_what_is_asked_for(name, python):
    lock = locked(name)
    extras = [line for extra in LOCKS[name] for line in SETS[extra]]
    for asked in map(Requirement, [*PROJECT["dependencies"], *extras]):
        if asked.name != "torch" and applies(asked, python):
            found = version(lock, asked.name, python)
            assert found is not None and found in asked.specifier, f"{name} has {asked.name} {found}: make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_hashes_and_names_no_host(name):
    assert all(hashes and len(requirement.specifier) == 1 for requirement, hashes in locked(name))
    assert "torch" not in {requirement.name for requirement, _ in locked(name)}
    assert not re.search(r"://|^--|[ /]file:|@ ", (ROOT / "requirements" / name).read_text(), re.MULTILINE)


def test_what_torch_imports_is_locked():
    """Only CUDA's own packages, which come with some wheels, do not."""
    lock = locked("demo.lock")
    try:
        asked = [Requirement(line) for line in requires("torch") or ()]
    except PackageNotFoundError:
        pytest.skip("no torch")
    for needed in asked:
        if needed.marker is None and not needed.name.startswith(("nvidia-", "cuda-", "triton")):
            found = version(lock, needed.name, "3.12")
            assert found is not None and found in needed.specifier, needed.name


def test_the_locks_agree():
    everything = {(requirement.name, requirement.specifier) for requirement, _ in locked("dev.lock")}
    assert {(requirement.name, requirement.specifier) for requirement, _ in locked("demo.lock")} <= everything


def test_every_dependency_is_bounded_on_both_sides():
    for asked in map(Requirement, PROJECT["dependencies"]):
        assert {clause.operator for clause in asked.specifier} == {">=", "<"}, asked.name


@pytest.mark.parametrize(
    ("found", "code", "line"),
    [
        (None, 0, "advisories: the database was not reached (ConnectionError: refused)"),
        ([], 0, "advisories: none for 2 packages"),
        ([{"id": "PYSEC-1", "fix_versions": ["1.3"]}], 1, "a 1.2: PYSEC-1, fixed in 1.3"),
    ],
)
def test_a_known_vulnerability_fails_and_no_database_passes(found, code, line):
    def audit(answer):
        if found is not None:
            packages = [{"name": "a", "version": "1.2", "vulns": found}, {"name": "b", "version": "1"}]
            answer.write_text(json.dumps({"dependencies": packages}))
        return "ERROR: no route\nConnectionError: refused\n"

    assert check(audit) == (code, [line])
