"""Handing a finding on: its line to the user's editor, its words to the clipboard."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tuimon.text import code_place
from tuimon.views.finding_text import markdown_lines
from tuimon.views.format import plain

if TYPE_CHECKING:
    from textual.app import App

    from tuimon.diagnosis.finding import Finding
    from tuimon.records import Place

#: Editors that take ``FILE:LINE``, and the options before it; all others take ``+LINE FILE``, as vi does.
_FILE_LINE = {
    **dict.fromkeys(("code", "code-insiders", "codium", "cursor", "windsurf"), ("--goto",)),
    **dict.fromkeys(("subl", "hx", "helix", "zed", "zeditor"), ()),
}
#: Editors to look for if the environment names none.
_USUAL = ("nano", "vim", "vi", "emacs")


def editor_command(environ: Mapping[str, str], file: str, line: int) -> list[str] | None:
    """The command that opens a line in the editor of ``VISUAL`` or ``EDITOR``, or in a usual one; None without any."""
    named = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or "")
    editor = named or [name for name in _USUAL if shutil.which(name, path=environ.get("PATH"))][:1]
    if not editor:
        return None
    before = _FILE_LINE.get(os.path.basename(editor[0]))
    return [*editor, f"+{line}", file] if before is None else [*editor, *before, f"{file}:{line}"]


def open_place(app: App[Any], place: Place) -> None:  # Any: whatever the app returns
    """Open a line of code in the user's editor, which has the terminal until it ends; the app's ticks go on."""
    command = editor_command(os.environ, place.file, place.line)
    if not os.path.isfile(place.file):
        app.notify(f"{code_place(place)} is not on this machine", severity="warning", markup=False)
    elif command is None:
        app.notify("no editor found: set EDITOR", severity="warning", markup=False)
    else:
        app.run_worker(_edit(app, command))


async def _edit(app: App[Any], command: Sequence[str]) -> None:
    failure = f"cannot run {plain(command[0])}: see EDITOR"
    with app.suspend(), suppress(OSError):
        await asyncio.to_thread(subprocess.call, command)
        failure = ""
    if failure:
        app.notify(failure, severity="warning", markup=False)


def copy_finding(app: App[Any], finding: Finding) -> None:
    """Copy a finding as Markdown, through the terminal (OSC 52)."""
    app.copy_to_clipboard("\n".join(markdown_lines(finding)) + "\n")
    app.notify("copied as Markdown: verdict, place and fix", markup=False)
