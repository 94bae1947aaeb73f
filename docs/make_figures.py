"""Write the figures of README.md and docs anew, from recorded logs and docs/cases.py: python -m docs.make_figures

Comments in a page name what the lines between them show: ``<!-- verdict LOG RULE -->`` a verdict as a quotation,
``<!-- cases LOG ... -->`` a table, ``<!-- accuracy GROUP -->`` labelled programs; ``<!-- end -->`` ends each.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import cache

from docs.cases import CASES, Case
from docs.make_accuracy import accuracy
from tests.recorded_logs import ROOT, log_path
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.verdicts import fold
from tuimon.sources.log.source import read_records
from tuimon.views.finding_text import fix_text, gain_text, rule_title

_END = "<!-- end -->"
_ORDER = re.compile(r"^(?P<order><!-- (?P<what>verdict|cases|accuracy) (?P<words>[^>]+?) -->)$", re.MULTILINE)
_BLOCK = re.compile(rf"{_ORDER.pattern}\n(?:(?!<!-- (?!end)).*\n)*?{_END}$", re.MULTILINE)
#: The pages with such comments.
PAGES = tuple(
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if _ORDER.search(page.read_text(encoding="utf-8"))
)


def with_figures(page: str) -> str:
    """The text of a page with its figures as they are now. Raises LookupError without a log, a finding, or an end."""
    if without := {each[0] for each in _ORDER.finditer(page)} - {each["order"] for each in _BLOCK.finditer(page)}:
        raise LookupError(f"no {_END} below {', '.join(without)}")
    return _BLOCK.sub(lambda block: f"{block['order']}\n{_shown(block['what'], block['words'].split())}{_END}", page)


def _shown(what: str, words: list[str]) -> str:
    match what:
        case "verdict":
            return _verdict(*words)
        case "cases":
            return _table([CASES[word] for word in words])
        case _:
            return accuracy(*words)


def _verdict(log: str, rule: str) -> str:
    finding = _finding(log, rule)
    lines = [f"**{rule_title(rule)}** ({finding.severity}): {_escaped(finding.headline)}"]
    best = _best(finding)
    if best is not None:
        gains = f"**Fix:** {_escaped(fix_text(best))}"
        case = CASES.get(log)
        if case is not None and case.rule == rule:
            gains += (
                f". **Measured:** {case.gain:.3g}x faster ({case.before_ms:.3g} ms a step, then {case.fixed_ms:.3g} ms)"
            )
        lines += ["", gains]
    lines += ["", f"`tuimon view {log_path(log).relative_to(ROOT)}`"]
    return "".join(f"> {line}".rstrip() + "\n" for line in lines)


def _table(cases: list[Case]) -> str:
    rows = ["| training | verdict | first fix | predicted | measured |", "|---|---|---|---|---|"]
    for case in cases:
        finding = _finding(case.log, case.rule)
        best = _best(finding)
        promised = gain_text(best) if best and best.estimated_speedup else "–"
        verdict = f"{rule_title(case.rule)} ({finding.severity})"
        rows.append(f"| {case.training} | {verdict} | {case.fix} | {promised} | {case.gain:.3g}x faster |")
    return "\n".join(rows) + "\n"


def _best(finding: Finding) -> Fix | None:
    """The first fix, where its gain is known."""
    fix = next(iter(finding.fixes), None)
    return fix if fix is not None and fix.estimated_speedup is not None else None


def _finding(log: str, rule: str) -> Finding:
    found = {finding.rule: finding for finding in reversed(_findings(log))}
    if rule not in found:
        raise LookupError(f"{log}: no {rule}, but {', '.join(found) or 'nothing'}")
    return found[rule]


@cache
def _findings(log: str) -> list[Finding]:
    return fold(read_records(str(log_path(log))))[1]


def _escaped(text: str) -> str:
    """Markdown that shows these characters."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def main() -> int:
    """Write the pages, or say which would change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page would change")
    args = parser.parse_args()
    changed = 0
    for name in PAGES:
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = with_figures(before)
        if after != before:
            changed += 1
            print(name)
            if not args.check:
                path.write_text(after, encoding="utf-8")
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
