"""Colours: one dark and one light theme, and what each role of a span looks like in them.

Phases keep their colour everywhere. The hues (amber, blue, violet, teal, green, grey) differ in lightness as well, so
that they stay apart for colour-blind eyes; every coloured thing also has its name beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.theme import Theme

_DARK = {
    "tm-text": "#d5dbe3",
    "tm-strong": "#ffffff",
    "tm-dim": "#8b96a5",
    "tm-faint": "#4b5563",
    "tm-track": "#252d38",
    "tm-border": "#38424f",
    "tm-focus": "#6cb6ff",
    "tm-key": "#6cb6ff",
    "tm-cursor": "#1f2a38",
    "tm-on-badge": "#0d1117",
    "tm-ground": "#0d1117",
    "tm-tint": "0.38",
    "tm-shade": "0.3",
    "tm-critical": "#ff7b72",
    "tm-warning": "#f0b429",
    "tm-info": "#6cb6ff",
    "tm-benign": "#56d4b0",
    "phase-data": "#f0a83c",
    "phase-forward": "#4fa3f7",
    "phase-backward": "#b392f0",
    "phase-optimizer": "#2dbfae",
    "phase-other": "#8b96a5",
    "phase-eval": "#8ccf6b",
    "chart-body": "#2f6f9f",
    "chart-edge": "#7cc4ff",
    "gpu-body": "#2f7d4f",
    "gpu-edge": "#86d99b",
}
_LIGHT = {
    "tm-text": "#24292f",
    "tm-strong": "#000000",
    "tm-dim": "#5b6673",
    "tm-faint": "#b3bcc7",
    "tm-track": "#e1e6ec",
    "tm-border": "#c3cad3",
    "tm-focus": "#0a5fc2",
    "tm-key": "#0a5fc2",
    "tm-cursor": "#dcebfb",
    "tm-on-badge": "#ffffff",
    "tm-ground": "#fbfcfd",
    "tm-tint": "0.3",
    "tm-shade": "0.22",
    "tm-critical": "#b3261e",
    "tm-warning": "#8a5300",
    "tm-info": "#0a5fc2",
    "tm-benign": "#0b6e5c",
    "phase-data": "#b86e00",
    "phase-forward": "#1668c7",
    "phase-backward": "#7a45c9",
    "phase-optimizer": "#007f74",
    "phase-other": "#66717e",
    "phase-eval": "#4a7d20",
    "chart-body": "#8dbbe8",
    "chart-edge": "#1668c7",
    "gpu-body": "#8cc79c",
    "gpu-edge": "#237a3d",
}

# Terminals with 16 colours: each variable is exactly one of them, so that the nearest match does not decide.
_BLACK, _WHITE, _GREY, _SILVER = "#000000", "#ffffff", "#555555", "#aaaaaa"
_DARK_16 = _DARK | {
    "tm-text": _SILVER,
    "tm-strong": _WHITE,
    "tm-dim": _SILVER,
    "tm-faint": _GREY,
    "tm-track": _GREY,
    "tm-border": _GREY,
    "tm-focus": "#55ffff",
    "tm-key": "#55ffff",
    "tm-cursor": _GREY,
    "tm-on-badge": _BLACK,
    "tm-ground": _BLACK,
    "tm-tint": "1",
    "tm-shade": "1",
    "tm-critical": "#ff5555",
    "tm-warning": "#ffff55",
    "tm-info": "#55ffff",
    "tm-benign": "#55ff55",
    "phase-data": "#ffff55",
    "phase-forward": "#5555ff",
    "phase-backward": "#ff55ff",
    "phase-optimizer": "#00aaaa",
    "phase-other": _SILVER,
    "phase-eval": "#00aa00",
    "chart-body": "#00aaaa",
    "chart-edge": "#55ffff",
    "gpu-body": "#00aa00",
    "gpu-edge": "#55ff55",
}
_LIGHT_16 = _LIGHT | {
    "tm-text": _BLACK,
    "tm-strong": _BLACK,
    "tm-dim": _GREY,
    "tm-faint": _SILVER,
    "tm-track": _SILVER,
    "tm-border": _SILVER,
    "tm-focus": "#0000aa",
    "tm-key": "#0000aa",
    "tm-cursor": _SILVER,
    "tm-on-badge": _WHITE,
    "tm-ground": _WHITE,
    "tm-tint": "1",
    "tm-shade": "1",
    "tm-critical": "#aa0000",
    "tm-warning": "#aa00aa",
    "tm-info": "#0000aa",
    "tm-benign": "#00aa00",
    "phase-data": "#aa5500",
    "phase-forward": "#5555ff",
    "phase-backward": "#aa00aa",
    "phase-optimizer": "#00aaaa",
    "phase-other": _GREY,
    "phase-eval": "#00aa00",
    "chart-body": "#55ffff",
    "chart-edge": "#00aaaa",
    "gpu-body": "#55ff55",
    "gpu-edge": "#00aa00",
}


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

#: role -> theme variable of its colour; words without a colour are in ``_ATTRIBUTES``.
ROLES = {
    "text": "tm-text",
    "strong": "tm-strong",
    "dim": "tm-dim",
    "faint": "tm-faint",
    "track": "tm-track",
    "key": "tm-key",
    "critical": "tm-critical",
    "warning": "tm-warning",
    "info": "tm-info",
    "benign": "tm-benign",
    "data": "phase-data",
    "forward": "phase-forward",
    "backward": "phase-backward",
    "optimizer": "phase-optimizer",
    "other": "phase-other",
    "between": "phase-other",
    "eval": "phase-eval",
    "chart-body": "chart-body",
    "chart-edge": "chart-edge",
    "gpu-body": "gpu-body",
    "gpu-edge": "gpu-edge",
}
#: A finding's severity, which is also a role -> its word on the screen.
SEVERITY_WORDS = {"critical": "critical", "warning": "warning", "info": "info", "benign": "healthy"}
_ATTRIBUTES = {
    "bold": Style(bold=True),
    "italic": Style(italic=True),
    "underline": Style(underline=True),
    "reverse": Style(reverse=True),
    "strike": Style(strike=True),
}


#: Words that put something behind the text.
_BACKGROUNDS = ("badge", "cursor", "tint", "shade")


def _mixed(colour: str, ground: str, share: float) -> str:
    """``share`` of a colour on a ground, both ``#rrggbb``."""
    parts = ((int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(top * share + under * (1 - share)):02x}" for top, under in parts)


def style_of(role: str, variables: Mapping[str, str], *, mono: bool = False) -> Style:
    """The look of a role; ``badge`` puts the colour behind the text, ``tint`` some of it, ``shade`` less.

    ``cursor`` is the cursor's background, ``edge`` text as dark as the ground. Without colours (``mono``) backgrounds
    become reversed text.

    A word that starts with ``#`` or names an ANSI colour comes from a program's output: ``fg:`` / ``bg:`` colour.
    """
    style = Style.null()
    for word in role.split():
        if mono and word in _BACKGROUNDS:
            style += Style(reverse=True, bold=word == "badge")
        elif word in ("badge", "tint", "shade"):
            style = _behind(style, word, variables)
        else:
            style += _style_of_word(word, variables, mono=mono)
    return style


def _behind(style: Style, word: str, variables: Mapping[str, str]) -> Style:
    """The colour so far behind the text: all of it (``badge``), some (``tint``) or less (``shade``)."""
    if word == "badge":
        return Style(color=variables["tm-on-badge"], bgcolor=style.color or variables["tm-text"], bold=True)
    own = style.color.name if style.color else variables["tm-text"]
    share = float(variables["tm-tint" if word == "tint" else "tm-shade"])
    text = variables["tm-on-badge"] if share == 1 else variables["tm-text"]
    return Style(color=text, bgcolor=_mixed(own, variables["tm-ground"], share))


def _style_of_word(word: str, variables: Mapping[str, str], *, mono: bool) -> Style:
    if word in _ATTRIBUTES:
        return _ATTRIBUTES[word]
    if word in ROLES:
        return Style(color=variables[ROLES[word]], bold=True if word == "strong" else None)
    if word == "edge":
        return Style(color=None if mono else variables["tm-ground"])
    if word == "cursor":
        return Style(bgcolor=variables["tm-cursor"])
    kind, _, colour = word.partition(":")
    match kind:
        case "fg":
            return Style(color=colour)
        case "bg":
            return Style(bgcolor=colour)
        case "on":
            return Style(bgcolor=variables[ROLES[colour]])
    return Style.null()
