"""Starts the target (environment, output file, signals, exit status), or looks at one that runs."""

from __future__ import annotations

from tuimon.launch.attached import Attached, Candidate, candidates, look_at, members
from tuimon.launch.child import Ended, Launched, new_run_id
from tuimon.launch.places import output_path, state_directory
from tuimon.launch.resolve import resolve

__all__ = [
    "Attached",
    "Candidate",
    "Ended",
    "Launched",
    "candidates",
    "look_at",
    "members",
    "new_run_id",
    "output_path",
    "resolve",
    "state_directory",
]
