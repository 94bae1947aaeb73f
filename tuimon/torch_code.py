"""What the frames of torch, and of our own hooks in the training, mean: the one place that knows their files."""

from __future__ import annotations

#: Our hooks; logs written before 0.2 name their folder ``target``.
_AGENT_FOLDERS = ("tuimon/agent/", "tuimon/target/")


def is_agent_file(file: str) -> bool:
    """Whether a frame's file is one of our hooks in the training."""
    return any(folder in file for folder in _AGENT_FOLDERS)
