"""Which packages other than torch do the work of a line, where its text shows it: ``raw = zlib.decompress(packed)``.

A call into compiled code has no frame of its own, and such code often releases the GIL, as torch's does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuimon.proc.target_files import Rights, TargetFiles
from tuimon.sources.source_text import SourceText

#: Packages that compute, compress, read or wait for their caller, and release the GIL meanwhile.
_PACKAGES = re.compile(
    r"bz2|cv2|gzip|hashlib|http|io|lzma|numpy|pandas|PIL|polars|pyarrow|scipy|select|shutil|skimage|sklearn|socket|sqlite3"
    r"|subprocess|tarfile|time|urllib|zipfile|zlib"
)
_IMPORT = re.compile(rb"^[ \t]*import[ \t]+([^\n#;]+)", re.MULTILINE)
_FROM = re.compile(rb"^[ \t]*from[ \t]+(\w+)[\w.]*[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n#;]+))", re.MULTILINE)
_COMMENT = re.compile(rb"#[^\n]*")
#: How many files' imports are held at once.
_FILES_HELD = 64


class PackagesAtWork:
    """Finds these packages by the imports of the files that the lines are of."""

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._imports: dict[tuple[str, Rights | None], dict[str, str]] = {}

    def on_line(self, text: str, file: str, files: TargetFiles) -> str:
        """Packages that do all of a line's work, as far as its text shows, ``numpy, zlib``; "" where torch may, too."""
        imports = self._of(file, files) if "(" in text else {}
        if not any(_PACKAGES.fullmatch(package) for package in imports.values()):
            return ""
        from tuimon.sources.stacks.frames.line_calls import packages_called

        found = packages_called(text, imports) or ()
        return ", ".join(sorted(found)) if all(_PACKAGES.fullmatch(package) for package in found) else ""

    def _of(self, file: str, files: TargetFiles) -> dict[str, str]:
        """Package by the name that stands for it, or for something taken out of it."""
        key = (file, files.rights)
        known = self._imports.get(key)
        if known is None:
            if len(self._imports) >= _FILES_HELD:
                del self._imports[next(iter(self._imports))]
            known = self._imports[key] = imported_packages(self._source.whole(file, files))
        return known


def imported_packages(text: bytes) -> dict[str, str]:
    """The packages that a file imports, by the name that stands for each, or for something taken out of it."""
    return dict(_imported(text))


def _imported(text: bytes) -> Iterator[tuple[str, str]]:
    for match in _IMPORT.finditer(text):
        for module, alias in _aliases(match[1]):
            package = module.partition(".")[0]
            yield alias or package, package
    for match in _FROM.finditer(text):
        for name, alias in _aliases(match[2] or match[3]):
            yield alias or name, match[1].decode()


def _aliases(names: bytes) -> Iterator[tuple[str, str]]:
    """The names in ``a.b as c, d``, and their aliases; "" for those without one."""
    for part in _COMMENT.sub(b"", names).decode("utf-8", "replace").split(","):
        name, _, alias = part.strip().partition(" as ")
        yield name, alias.strip()
