"""Gather the pages of the docs site, and generate those of rules and commands: python -m docs.make_site FOLDER

FOLDER gets the pages and zensical.toml; `make docs` builds the site from it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.recorded_logs import ROOT
from tuimon.cli.main import COMMANDS
from tuimon.diagnosis.explain.page import Page, all_pages
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rulebook import RULES
from tuimon.views.explain import CodeBlock, Heading, ListItem, Paragraph, page_parts
from tuimon.views.finding_text import rule_title

#: Sections and their pages, as they are below docs; "rules/Input" is a part of the generated ones of rules, and "cli/*"
#: stands for those of commands.
NAV = {
    "Start": ["index.md", "questions.md", "gallery.md"],
    "Use": [
        "start.md", "read-the-screen.md", "cpu-in-backward.md", "logs.md", "did-it-help.md", "hangs.md",
        "traces.md", "ranges.md", "parallel.md", "many-machines.md", "slurm.md", "docker.md", "kubernetes.md", "ssh.md",
        "notebooks.md", "metrics.md", "assistants.md", "python.md", "environment.md",
    ],
    "Rules": ["rules/index.md", "rules/Input", "rules/CPU", "rules/GPU", "rules/Ranks", "rules/The run"],
    "Commands": ["cli/*"],
    "How it works": [
        "how-it-works.md", "internals/markers.md", "internals/stacks.md", "internals/gpu-clock.md",
        "internals/verdicts.md", "internals/comparisons.md", "internals/hangs.md",
        "internals/orders.md", "internals/log.md", "internals/accuracy.md", "internals/faults.md",
    ],
    "Trust": ["measured.md", "accuracy.md", "costs.md", "reliability.md", "limits.md", "security.md"],
    "Contribute": ["contributing.md", "internals/extending.md"],
}  # fmt: skip
#: The part of the rules that a family's pages are in, by the beginning of its name; the first that fits counts.
_PARTS = {
    "input": "Input", "gpu": "GPU", "ranks": "Ranks", "course": "The run", "hang": "The run", "memory": "The run",
    "": "CPU",
}  # fmt: skip
#: What tuimon says of recorded runs, in the order in which a rule's sample verdict is looked for in it.
_REPORTS = [
    ROOT / "tests/data/verdicts" / f"{name}.reports.txt" for name in ("logs", "gpu_recordings", "pairs", "altered")
]
_SAMPLE = re.compile(
    r"^[A-Z]+(?:-[A-Z]+)* \((?:critical|warning|info|benign)(?:, \w+)?\): .*?(?=\n\n)", re.DOTALL | re.MULTILINE
)
#: Pages that lie elsewhere in the repository.
ELSEWHERE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
_SUFFIXES = (".md", ".svg", ".json")
#: No fonts, scripts or pictures from other servers; no folders in addresses, so that the site also opens from a disk.
_CONFIG = """\
[project]
site_name = "tuimon"
site_description = "What your PyTorch training waits for, which line causes it, and what fixing it gains."
docs_dir = "pages"
site_dir = "site"
use_directory_urls = false
nav = {nav}

[project.theme]
font = false
features = ["navigation.indexes", "navigation.top", "navigation.footer", "content.code.copy"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Light"
"""

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<address>[^)\s]+)\)")
_IMAGE = re.compile(r'(?<=<img src=")[^"]+(?=")')
_ORDER = re.compile(r"^<!-- (?:verdict|cases|accuracy|end) .*?-->$", re.MULTILINE)
_VERDICT = re.compile(r"\*\*([A-Z]+(?:-[A-Z]+)*)\*\*(?= \((?:critical|warning|info|benign)\): )")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


def sources() -> dict[str, str]:
    """Each file that the site has, as a path in the repository, with its path in the site."""
    found = sorted(path for path in (ROOT / "docs").rglob("*") if path.suffix in _SUFFIXES)
    own = {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix() for path in found}
    return own | ELSEWHERE


def moved(text: str, source: str, site: dict[str, str]) -> str:
    """A page with its links as they are in the site; a link to a file that the site lacks becomes its text.

    Quoted verdicts link to their rules. Raises FileNotFoundError for a link to a file that the repository lacks.
    """
    here = posixpath.dirname(site[source])

    def address(link: str) -> str | None:
        path, mark, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{source}: there is no {link}")
        return posixpath.relpath(site[target], here or ".") + mark + anchor if target in site else None

    def link(match: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", match["address"]):
            return match[0]
        there = address(match["address"])
        return match["text"] if there is None else f"{match['picture']}[{match['text']}]({there})"

    parts, end = [], 0
    for fence in _FENCED.finditer(text):
        parts += [_LINK.sub(link, text[end : fence.start()]), fence[0]]
        end = fence.end()
    text = "".join([*parts, _LINK.sub(link, text[end:])])
    text = _IMAGE.sub(lambda match: address(match[0]) or match[0], text)
    rules = posixpath.relpath("rules", here or ".")
    text = _VERDICT.sub(lambda match: f"[{match[0]}]({rules}/{match[1].lower().replace('-', '_')}.md)", text)
    return _ORDER.sub("", text)


def part_of(rule: Rule) -> str:
    """The part of the rules that a rule's page is in."""
    family = rule.judge.__module__.partition(".rules.")[2]
    return next(part for begin, part in _PARTS.items() if family.startswith(begin))


@cache
def samples() -> dict[str, str]:
    """By rule, a verdict of a recorded run: the first with a place and a gain, else with a place, else the first."""
    found: dict[str, list[str]] = {}
    for path in _REPORTS:
        for match in _SAMPLE.finditer(path.read_text(encoding="utf-8")):
            found.setdefault(match[0].partition(" ")[0], []).append(match[0])
    return {
        title: max(texts, key=lambda text: ("\n  at " in text) * (1 + ("\n  Gain: " in text)))
        for title, texts in found.items()
    }


def rule_page(page: Page) -> str:
    """A rule's page as Markdown, from a verdict of a recorded run on."""
    title = rule_title(page.rule)
    lines = [f"# {title}", "", f"*{_markdown(page.title)}*", ""]
    if title in samples():
        lines += ["```text", samples()[title], "```", ""]
    for kind, parts in groupby(page_parts(page), key=type):
        lines += [line for part in parts for line in _part(part)]
        lines += [""] if kind is ListItem else []
    return "\n".join([*lines, "On a terminal:", "", "```", f"tuimon explain {page.rule}", "```", ""])


def _part(part: Heading | Paragraph | ListItem | CodeBlock) -> list[str]:
    match part:
        case Heading(text):
            return [f"## {_markdown(text)}", ""]
        case Paragraph(text):
            return [_markdown(text), ""]
        case ListItem(name, text):
            return [f"- **{_markdown(name)}**: {_markdown(text)}" if name else f"- {_markdown(text)}"]
        case CodeBlock(label, language, code):
            return [f"{label.capitalize()}:", "", f"```{language}", code, "```", ""]


def _markdown(text: str) -> str:
    """Text with names in backquotes; other characters that mean something to Markdown are shown, and addresses link."""
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"([\\*_\[\]<])", r"\\\1", piece) for piece in pieces[::2]]
    return re.sub(
        r"https://[^\s()`]+[^\s().,;:`]", lambda match: f"<{match[0].replace(chr(92), '')}>", "`".join(pieces)
    )


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command: the one that answers to --help."""
    found: list[argparse.ArgumentParser] = []
    with (
        patch.object(argparse.ArgumentParser, "print_help", lambda parser, file=None: found.append(parser)),
        contextlib.suppress(SystemExit),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        import_module(f"tuimon.cli.commands.{command}").main(["--help"])
    return found[0]


def command_page(command: str) -> str:
    """A command's page as Markdown, from its parser."""
    parser = parser_of(command)
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    lines = [f"# tuimon {command}", "", *_paragraphs(parser.description or ""), "```", usage, "```", ""]
    for group in parser._action_groups:  # argparse has no other way to its groups
        actions = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]
        if actions:
            lines += [f"## {(group.title or 'options').capitalize()}", ""]
            lines += [f"- `{_invocation(parser, action)}`: {_help(parser, action)}" for action in actions]
            lines += [""]
    return "\n".join([*lines, *_paragraphs(parser.epilog or "")])


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text; indented ones are examples."""
    for paragraph in text.strip("\n").split("\n\n"):
        example = paragraph.startswith(" ")
        yield from ("```", paragraph, "```") if example else (_markdown(paragraph),)
        yield ""


def _invocation(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return argparse.HelpFormatter(parser.prog)._format_action_invocation(action)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if not action.help:
        return f"one of {', '.join(map(str, action.choices))}; default: {action.default}" if action.choices else ""
    return _markdown(argparse.HelpFormatter(parser.prog)._expand_help(action))


def pages() -> dict[str, str]:
    """Every page of the site by its path."""
    site = sources()
    found = {
        there: moved((ROOT / source).read_text(encoding="utf-8"), source, site)
        for source, there in site.items()
        if source.endswith(".md")
    }
    rules = all_pages()
    rows = [f"- [{rule_title(page.rule)}]({page.rule}.md): {_markdown(page.title)}" for page in rules]
    found["rules/index.md"] = "\n".join(["# Rules", "", "Every verdict that tuimon knows.", "", *rows, ""])
    found |= {f"rules/{page.rule}.md": rule_page(page) for page in rules}
    rows = [f"- [tuimon {name}]({name}.md): {_markdown(text)}" for name, text in COMMANDS.items()]
    found["cli/index.md"] = "\n".join(["# Commands", "", *rows, ""])
    found |= {f"cli/{name}.md": command_page(name) for name in COMMANDS}
    return found


def navigation(found: dict[str, str]) -> list[dict[str, list[Any]]]:  # a page, or a title with its pages
    """The sections of the site, each with its pages in order."""

    def entries(name: str) -> list[Any]:
        if name.startswith("rules/") and not name.endswith(".md"):
            part = name.removeprefix("rules/")
            return [{part: [f"rules/{rule.name}.md" for rule in RULES if part_of(rule) == part]}]
        if not name.endswith("*"):
            return [name] if name in found else []
        return [path for path in found if path.startswith(name[:-1])]

    return [{title: [entry for name in names for entry in entries(name)]} for title, names in NAV.items()]


def main() -> int:
    """Write everything into a folder; one that is there is replaced."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    os.environ["COLUMNS"] = "100"
    shutil.rmtree(folder / "pages", ignore_errors=True)
    found = pages()
    for path, text in found.items():
        _place(folder / "pages" / path).write_text(text, encoding="utf-8")
    for source, path in sources().items():
        if not source.endswith(".md"):
            shutil.copyfile(ROOT / source, _place(folder / "pages" / path))
    (folder / "zensical.toml").write_text(_CONFIG.format(nav=_toml(navigation(found))), encoding="utf-8")
    return 0


def _place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _toml(value: Any) -> str:  # lists, tables of one key, strings
    match value:
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(entry)}' for key, entry in value.items())} }}"
        case _:
            return json.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
