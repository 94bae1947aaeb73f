"""Screenshots as SVG that load nothing from elsewhere, at a third of the size."""

from __future__ import annotations

import re

#: Textual's SVG loads a font from a public server.
_FONTS = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)
#: A clip a line and a reference to it in each piece of text: the pieces have their lengths anyway.
_LINE_CLIPS = re.compile(r'\s*<clipPath id="[\w-]+-line-\d+">.*?</clipPath>', re.DOTALL)
_CLIPPED = re.compile(r' clip-path="url\(#[\w-]+-line-\d+\)"')
_BLANK = re.compile(r"<text [^>]*>(?:&#160;|\s)*</text>\n?")
_ID = re.compile(r"terminal-\d+-")


def standalone_svg(svg: str) -> str:
    """A picture by Textual's ``export_screenshot``, with fonts of the reader's machine alone."""
    for pattern in (_FONTS, _LINE_CLIPS, _CLIPPED, _BLANK):
        svg = pattern.sub("", svg)
    svg = _ID.sub("t-", svg).replace("&#160;", "\N{NO-BREAK SPACE}")
    return svg.replace("Fira Code, monospace", "'Fira Code', 'DejaVu Sans Mono', Menlo, Consolas, monospace")
