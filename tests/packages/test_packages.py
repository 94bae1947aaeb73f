"""The locks hold what pyproject.toml asks for, by hash; the check of advisories needs no network to pass."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.packages.advisories import check

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
SETS = PROJECT["optional-dependencies"] | PYPROJECT["dependency-groups"]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LOCKS = {"dev.lock": ("demo", "test"), "demo.lock": ("demo",), "docs.lock": ("docs",), "wild.lock": ("wild",)}


def locked(name: str) -> list[tuple[Requirement, int]]:
    """Each requirement of a lock and how many hashes it has."""
    whole = (ROOT / "requirements" / name).read_text().replace("\\\n", " ")
    lines = [line for line in whole.splitlines() if line and not line.startswith("#")]
    return [(Requirement(line.split("--hash", 1)[0].strip()), line.count("--hash=sha256:")) for line in lines]


def applies(requirement: Requirement, python: str) -> bool:
    """Whether it is for this Python on Linux."""
    environment = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": "linux"}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def version(lock: list[tuple[Requirement, int]], name: str, python: str) -> Version | None:
    """What a lock installs of a package under one Python on Linux."""
    for requirement, _ in lock:
        if applies(requirement, python) and canonicalize_name(requirement.name) == canonicalize_name(name):
            return Version(next(iter(requirement.specifier)).version)
    return None


def test_every_python_is_a_classifier_and_tested_by_the_workflow() -> None:
    prefix = "Programming Language :: Python :: "
    listed = [each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(f"{prefix}3.")]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert listed == list(PYTHONS)
    assert re.findall(r"^ +python: \[(.*)\]$", workflow, re.MULTILINE) == [", ".join(f'"{each}"' for each in PYTHONS)]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_covers_what_is_asked_for(name: str, python: str) -> None:
    lock = locked(name)
    extras = [line for extra in LOCKS[name] for line in SETS[extra]]
    for asked in map(Requirement, [*PROJECT["dependencies"], *extras]):
        if asked.name != "torch" and applies(asked, python):
            found = version(lock, asked.name, python)
            assert found is not None and found in asked.specifier, f"{name} has {asked.name} {found}: make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_hashes_and_names_no_host(name: str) -> None:
    assert all(hashes and len(requirement.specifier) == 1 for requirement, hashes in locked(name))
    assert "torch" not in {requirement.name for requirement, _ in locked(name)}
    assert not re.search(r"://|^--|[ /]file:|@ ", (ROOT / "requirements" / name).read_text(), re.MULTILINE)


def test_what_torch_imports_is_locked() -> None:
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


def test_the_locks_agree() -> None:
    everything = {(requirement.name, requirement.specifier) for requirement, _ in locked("dev.lock")}
    assert {(requirement.name, requirement.specifier) for requirement, _ in locked("demo.lock")} <= everything


def test_every_dependency_is_bounded_on_both_sides() -> None:
    for asked in map(Requirement, PROJECT["dependencies"]):
        assert {clause.operator for clause in asked.specifier} == {">=", "<"}, asked.name


def test_no_database_is_said_and_passes() -> None:
    code, lines = check(lambda answer: "ERROR: no route\nConnectionError: refused\n")
    assert code == 0 and lines == ["advisories: the database was not reached (ConnectionError: refused)"]


def test_a_known_vulnerability_fails() -> None:
    def audit(answer: Path) -> str:
        found = {"id": "PYSEC-1", "fix_versions": ["1.3"]}
        packages = [{"name": "a", "version": "1.2", "vulns": [found]}, {"name": "b", "version": "1", "vulns": []}]
        answer.write_text(json.dumps({"dependencies": packages}))
        return ""

    assert check(audit) == (1, ["a 1.2: PYSEC-1, fixed in 1.3"])


def test_no_known_vulnerability_passes() -> None:
    def audit(answer: Path) -> str:
        answer.write_text('{"dependencies": [{"name": "a", "version": "1.2", "vulns": []}]}')
        return ""

    assert check(audit) == (0, ["advisories: none for 1 packages"])
