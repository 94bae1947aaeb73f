"""Colours: one dark and one light theme, and the look of each role of a span in them.

Phases keep their colour everywhere. The hues (amber, blue, violet, teal, green, grey) differ in lightness as well, so
that they stay apart for colour-blind eyes; every coloured thing also has its name next to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.theme import Theme

_BLACK, _WHITE, _GREY, _SILVER = "#000000", "#ffffff", "#555555", "#aaaaaa"
#: Role -> its colour in the dark theme and in the light one, then the same for terminals with 16 colours: exactly one
#: of the 16, so that the terminal need not pick the nearest. Other words of a role are attributes: ``bold`` ...
_COLOURS = {
    "text": ("#d5dbe3", "#24292f", _SILVER, _BLACK),
    "strong": ("#ffffff", "#000000", _WHITE, _BLACK),
    "dim": ("#8b96a5", "#5b6673", _SILVER, _GREY),
    "faint": ("#4b5563", "#b3bcc7", _GREY, _SILVER),
    "track": ("#252d38", "#e1e6ec", _GREY, _SILVER),
    "border": ("#38424f", "#c3cad3", _GREY, _SILVER),
    "focus": ("#6cb6ff", "#0a5fc2", "#55ffff", "#0000aa"),
    "key": ("#6cb6ff", "#0a5fc2", "#55ffff", "#0000aa"),
    "cursor": ("#1f2a38", "#dcebfb", _GREY, _SILVER),
    "on-badge": ("#0d1117", "#ffffff", _BLACK, _WHITE),
    "critical": ("#ff7b72", "#b3261e", "#ff5555", "#aa0000"),
    "warning": ("#f0b429", "#8a5300", "#ffff55", "#aa00aa"),
    "info": ("#6cb6ff", "#0a5fc2", "#55ffff", "#0000aa"),
    "benign": ("#56d4b0", "#0b6e5c", "#55ff55", "#00aa00"),
    "data": ("#f0a83c", "#b86e00", "#ffff55", "#aa5500"),
    "forward": ("#4fa3f7", "#1668c7", "#5555ff", "#5555ff"),
    "backward": ("#b392f0", "#7a45c9", "#ff55ff", "#aa00aa"),
    "optimizer": ("#2dbfae", "#007f74", "#00aaaa", "#00aaaa"),
    **dict.fromkeys(("other", "between"), ("#8b96a5", "#66717e", _SILVER, _GREY)),
    "eval": ("#8ccf6b", "#4a7d20", "#00aa00", "#00aa00"),
    "chart-body": ("#2f6f9f", "#8dbbe8", "#00aaaa", "#55ffff"),
    "chart-edge": ("#7cc4ff", "#1668c7", "#55ffff", "#00aaaa"),
    "gpu-body": ("#2f7d4f", "#8cc79c", "#00aa00", "#55ff55"),
    "gpu-edge": ("#86d99b", "#237a3d", "#55ff55", "#00aa00"),
}
_DARK, _LIGHT, _DARK_16, _LIGHT_16 = ({f"tm-{name}": row[at] for name, row in _COLOURS.items()} for at in range(4))


def _theme(name: str, variables: dict[str, str], background: str, panel: str, *, dark: bool) -> Theme:
    return Theme(
        name=name,
        dark=dark,
        primary=variables["tm-key"],
        background=background,
        surface=background,
        panel=panel,
        foreground=variables["tm-text"],
        variables=variables,
    )


#: Dark and light.
THEMES = (
    _theme("tuimon-dark", _DARK, "#0d1117", "#161c24", dark=True),
    _theme("tuimon-light", _LIGHT, "#fbfcfd", "#eef2f6", dark=False),
)
THEMES_16 = (
    _theme("tuimon-dark-16", _DARK_16, _BLACK, _BLACK, dark=True),
    _theme("tuimon-light-16", _LIGHT_16, _WHITE, _WHITE, dark=False),
)
DEFAULTS = _DARK

#: A finding's severity, which is also a role -> its word on the screen.
SEVERITY_WORDS = {"critical": "critical", "warning": "warning", "info": "info", "benign": "healthy"}


#: Words of a role that set the background.
_BACKGROUNDS = ("badge", "cursor")


def style_of(role: str, variables: Mapping[str, str], *, mono: bool = False) -> Style:
    """The look of a role; ``badge`` puts the colour behind the text, ``cursor`` the cursor's background.

    Without colours (``mono``) backgrounds become reversed text.

    A word that starts with ``#`` or names an ANSI colour comes from a program's output: ``fg:`` / ``bg:`` colour.
    """
    style = Style.null()
    for word in role.split():
        kind, _, colour = word.partition(":")
        if mono and word in _BACKGROUNDS:
            style += Style(reverse=True, bold=word == "badge")
        elif word == "badge":
            ground = style.color or variables["tm-text"]
            style = Style(color=variables["tm-on-badge"], bgcolor=ground, bold=True)
        elif word == "cursor":
            style += Style(bgcolor=variables["tm-cursor"])
        elif word in _COLOURS:
            style += Style(color=variables[f"tm-{word}"], bold=True if word == "strong" else None)
        elif kind == "on":
            style += Style(bgcolor=variables[f"tm-{colour}"])
        elif kind in ("fg", "bg"):
            style += Style.parse(colour if kind == "fg" else f"on {colour}")
        elif word in Style.STYLE_ATTRIBUTES:
            style += Style.parse(word)
    return style
