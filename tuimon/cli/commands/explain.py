"""``tuimon explain``: the meaning of a verdict, its certainty, and the advice."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec.structs import replace

from tuimon.cli.options import did_you_mean, parser_of
from tuimon.diagnosis.explain.page import Explained, all_pages, page_of
from tuimon.diagnosis.rulebook import BY_NAME, RULES
from tuimon.errors import UsageError
from tuimon.text import plain
from tuimon.views.json_text import json_text
from tuimon.views.tui.drawing.pages import write_pages

_DOC = """\
Explain a verdict: what it means, what is measured for it and how sure that is, when it is wrong, and what to do, with
code before and after. --full adds where its thresholds come from. Without RULE, list all rules."""


def main(argv: Sequence[str]) -> int:
    parser = parser_of("explain", _DOC)
    parser.add_argument("rule", nargs="?", metavar="RULE", help="a rule; or a cause such as no_workers, with its code")
    parser.add_argument("--all", action="store_true", help="all rules")
    parser.add_argument("--full", action="store_true", help="the thresholds as well, each with its source")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parsed = parser.parse_args(argv)
    if parsed.all and parsed.rule is not None:
        raise UsageError("--all explains every rule", "Leave out either --all or the rule")
    if parsed.rule is None and not parsed.all and parsed.format == "text":
        width = max(map(len, BY_NAME))
        sys.stdout.write("".join(f"{rule.name:<{width}}  {rule.title}\n" for rule in RULES))
        return 0
    pages = all_pages()
    if parsed.rule is not None:
        pages = [page_of(*rule_named(parsed.rule))]
    if parsed.format == "json":
        sys.stdout.write(json_text(Explained(list(pages)), indent=2))
    elif parsed.full:
        write_pages(pages, sys.stdout)
    else:
        short = [replace(page, thresholds=[]) for page in pages]
        write_pages(
            short, sys.stdout, f"\nThresholds: tuimon explain {plain(parsed.rule) if parsed.rule else '--all'} --full\n"
        )
    return 0


def rule_named(name: str) -> tuple[str, str | None]:
    """The rule, and its cause if one is named, in any spelling that views use. Raises UsageError without one."""
    of_rule, _, wanted = name.strip().lower().replace("-", "_").rpartition("/")
    if wanted in BY_NAME:
        return wanted, None
    rules = [rule.name for rule in RULES if wanted in rule.causes]
    if rules:
        return of_rule if of_rule in rules else rules[-1], wanted
    causes = [cause for rule in RULES for cause in rule.causes]
    hint = did_you_mean(wanted, [*BY_NAME, *causes]) or "tuimon explain lists the rules"
    raise UsageError(f"there is no rule {plain(name)!r}", hint)
