"""Lines of a program that set how many threads share an operation, how many workers load, its cores, its tracer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tuimon.records import CountSetting, CountSettings
from tuimon.sources.source_text import SOURCE_CHARS
from tuimon.text import plain

#: Most lines that are reported of a file.
_LIMIT = 4
_VARIABLE = rb"(?:OMP|MKL)_NUM_THREADS"
_SETTERS: dict[CountSetting, re.Pattern[bytes]] = {
    "threads": re.compile(
        rb"(?<!def )\bset_num_threads\s*\("
        rb"|[\"']" + _VARIABLE + rb"[\"']\s*\]\s*=(?!=)"
        rb"|(?:setdefault|putenv)\(\s*[\"']" + _VARIABLE + rb"[\"']"
    ),
    "workers": re.compile(rb"\bnum_workers\s*=(?!=)"),
    "tracer": re.compile(rb"\.(?:settrace|setprofile)\s*\(\s*(?!None\b)[^\s)]"),
    "cores": re.compile(rb"\bsched_setaffinity\s*\(|\.cpu_affinity\s*\(\s*[^\s)]"),
}
_FUNCTION = re.compile(rb"(\s*)(?:async\s+)?def\s+(\w+)")


def count_settings(lines: Sequence[bytes]) -> list[CountSettings]:
    """Those of a file, by its lines, in their order.

    This code sets ``threads`` at 2, in ``main``, and ``workers`` at 3::

        1  def main():
        2      torch.set_num_threads(8)
        3      loader = DataLoader(data, num_workers=4)
    """
    found = []
    for what, number in _matches(lines):
        text = plain(lines[number - 1][:SOURCE_CHARS].decode("utf-8", "replace")).strip()
        found.append(CountSettings(what, number, _function_around(lines, number), text))
        if len(found) == _LIMIT:
            break
    return found


def _matches(lines: Sequence[bytes]) -> Iterator[tuple[CountSetting, int]]:
    for number, line in enumerate(lines, 1):
        code = line.partition(b"#")[0]
        yield from ((what, number) for what, setter in _SETTERS.items() if setter.search(code))


def _function_around(lines: Sequence[bytes], number: int) -> str:
    """The function whose body holds a line, by what it is indented; ``<module>``: none."""
    indented = _indentation(lines[number - 1])
    for line in reversed(lines[: number - 1]):
        if not line.strip() or _indentation(line) >= indented:
            continue
        indented = _indentation(line)
        function = _FUNCTION.match(line)
        if function is not None:
            return function[2].decode()
        if not indented:
            break
    return "<module>"


def _indentation(line: bytes) -> int:
    return len(line) - len(line.lstrip())
