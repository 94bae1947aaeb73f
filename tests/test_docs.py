"""The docs name tests that exist, show the figures of their logs, and link to what is there."""

import re
from collections import Counter
from functools import cache

import pytest

from docs.make_figures import PAGES, with_figures
from docs.make_site import command_page, moved, navigation, pages, parser_of, sources
from tests.recorded_logs import ROOT
from tuimon.cli.main import COMMANDS
from tuimon.diagnosis.explain.page import all_pages

_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
#: A file or folder of the repository, by its whole path or the end of it; words in capitals stand for any name.
_PATH = re.compile(r"`((?:\w+/)+(?:\w+/|\w+\.(?:py|c|md|tcss|js)))`")
_ANY_NAME = re.compile(r"[A-Z]{4}|_N\.")
INTERNALS = sorted((ROOT / "docs" / "internals").glob("*.md"))


@cache
def _tests_of(file):
    text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/internals/faults.md"])
def test_every_row_names_tests_that_exist(page):
    """Rows of tables, but for their heads, and for the one row that says against whom there is no defence."""
    text = (ROOT / page).read_text()
    assert [f"{file}::{name}" for file, name in _NAMED.findall(text) if name not in _tests_of(file)] == []
    rows = [line for line in text.splitlines() if re.match(r"\| (?!fault|#|who)", line)]
    assert len(rows) > 10
    assert [row for row in rows if not _NAMED.search(row) and not row.startswith("| 10 |")] == []


def _every_path():
    """Each file and folder of the repository, by its path and by all ends of that."""
    for folder in ("tuimon", "tests", "docs", "bench", "demo", "requirements"):
        for path in ((ROOT / folder), *(ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            end = "/" if path.is_dir() else ""
            yield from ("/".join(parts[begin:]) + end for begin in range(len(parts)))


@cache
def _paths():
    return frozenset(_every_path())


def test_every_path_that_a_page_or_a_docstring_names_exists():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    named = {(page.name, path) for page in pages for path in _PATH.findall(page.read_text())}
    own = {folder.name for folder in (ROOT / "tuimon").iterdir() if folder.is_dir()} | {"tuimon"}
    modules = [module for folder in ("tuimon", "tests", "bench", "docs") for module in (ROOT / folder).rglob("*.py")]
    inside = {(module.name, path) for module in modules for path in _PATH.findall(module.read_text())}
    named |= {each for each in inside if each[1].partition("/")[0] in own}
    assert len(named) > 100
    assert sorted(each for each in named if each[1] not in _paths() and not _ANY_NAME.search(each[1])) == []


#: Any file name, with or without folders; and those of files that are not the repository's.
_FILE = re.compile(r"`([\w./]+\.(?:py|c|md|css|tcss|js|1))`")
_FOREIGN = {"msgspec.py"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", *(f"docs/internals/{each.name}" for each in INTERNALS)])
def test_each_file_that_a_page_for_developers_names_is_one_file(page):
    """By its path below tuimon/, or by an end of its path that no other file has."""
    ends = Counter(path for path in _every_path() if "." in path)
    named = {name for name in _FILE.findall((ROOT / page).read_text()) if not _ANY_NAME.search(name)} - _FOREIGN
    assert len(ends) > 100
    assert [name for name in sorted(named) if ends[name] != 1 and not (ROOT / "tuimon" / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_figures_of_a_page_are_those_of_its_logs(page):
    """After a change of words or rules: make figures."""
    text = (ROOT / page).read_text()
    assert "\n<!-- " in text
    assert with_figures(text) == text


def test_figures_below_a_comment_are_written_anew():
    stale = "Before\n\n<!-- verdict queue_full spin_wait -->\n> **SPIN-WAIT**: yesterday's\n<!-- end -->\nAfter\n"
    fresh = with_figures(stale)
    assert fresh.startswith("Before\n\n<!-- verdict queue_full spin_wait -->\n> **SPIN-WAIT** (benign): ")
    assert fresh.endswith("> `tuimon view tests/data/logs/queue_full.jsonl.gz`\n<!-- end -->\nAfter\n")
    assert "yesterday" not in fresh


def test_a_verdict_that_its_log_does_not_have_is_an_error():
    with pytest.raises(LookupError, match=r"queue_full: no hang, but .*spin_wait"):
        with_figures("<!-- verdict queue_full hang -->\n<!-- end -->\n")


@pytest.mark.parametrize("after", ["", "<!-- verdict queue_full spin_wait -->\n<!-- end -->\n"])
def test_figures_without_an_end_are_an_error(after):
    with pytest.raises(LookupError, match=r"no <!-- end --> below <!-- cases h100_masked_loss -->"):
        with_figures(f"<!-- cases h100_masked_loss -->\nthe rest of the page\n{after}")


def test_the_readme_begins_with_the_installation_and_a_look_then_what_a_clone_can():
    readme = (ROOT / "README.md").read_text()
    commands = ("\nuv tool install ", "\ntuimon demo ", "\nmake demo ", "\nmake test ", "make demo TORCH=./torch-")
    places = [readme.find(command) for command in commands]
    assert places == sorted(places) and min(places) > 0


def test_the_readme_has_the_measured_cost_of_the_monitor():
    """That of one rank."""
    readme, costs = ((ROOT / page).read_text() for page in ("README.md", "docs/costs.md"))
    shares = re.findall(r"^\| CPU of the monitor, (?:screen|headless): 1 .*\| ([\d.]+) / ", costs, re.MULTILINE)
    sizes = re.findall(r"^\| memory of the monitor, screen / headless: 1 .*\| (\d+) / (\d+) MB", costs, re.MULTILINE)[0]
    with_screen, without = (f"{share} % of a core and {size} MB" for share, size in zip(shares, sizes, strict=True))
    assert f"{with_screen} with the screen, {without.replace(' of a core', '')} without" in readme


@cache
def _site():
    return pages()


def test_code_on_the_sites_first_page_fits_its_column():
    """About 80 characters; what is beyond them is cut until somebody scrolls."""
    blocks = re.findall(r"^```.*?^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    assert [line for block in blocks for line in block.splitlines() if len(line) > 78] == []


def test_every_page_of_the_site_is_in_its_navigation():
    def paths(entry):  # a page, or sections of pages
        if isinstance(entry, str):
            return [entry]
        return [path for part in (entry.values() if isinstance(entry, dict) else entry) for path in paths(part)]

    listed = paths(navigation(_site()))
    assert sorted(listed) == sorted(_site())


def test_every_rule_has_a_page_with_its_code():
    for page in all_pages():
        text = _site()[f"rules/{page.rule}.md"]
        for pair in page.code:
            assert f"```{pair.language}\n{pair.before}\n```" in text
            assert f"```{pair.language}\n{pair.after}\n```" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_with_its_options(command):
    text = command_page(command)
    options = {option for action in parser_of(command)._actions for option in action.option_strings}
    assert "--help" in options
    assert [option for option in options if option not in text] == []


def test_links_move_with_their_page():
    site = sources()
    text = "[a](docs/ssh.md#metrics-through-ssh) [b](tests/conftest.py) [c](https://example.com) ![d](docs/tuimon.svg)"
    assert moved(text, "README.md", site) == (
        "[a](ssh.md#metrics-through-ssh) b [c](https://example.com) ![d](tuimon.svg)"
    )
    assert moved("[e](../ssh.md)", "docs/internals/log.md", site) == "[e](../ssh.md)"


def test_a_quoted_verdict_links_to_its_rule():
    assert "> [**SPIN-WAIT**](rules/spin_wait.md) (benign): " in _site()["questions.md"]


def test_a_link_to_nothing_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"docs/ssh\.md: there is no nowhere\.md"):
        moved("[a](nowhere.md)", "docs/ssh.md", sources())


def test_pictures_load_nothing_from_elsewhere():
    pictures = list((ROOT / "docs").rglob("*.svg"))
    assert len(pictures) > 10
    loads = re.compile(r"url\((?!#)|@import|@font-face|href=|src=|<script|<foreignObject")
    assert [picture.name for picture in pictures if loads.search(picture.read_text())] == []
