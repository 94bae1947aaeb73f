"""Starts the target (environment, output file, signals, exit status), or looks at one that runs."""

from __future__ import annotations

from tuimon.launch.attached import Attached, Candidate, candidates, look_at, members, ring_directory
from tuimon.launch.child import Ended, Launched, new_run_id
from tuimon.launch.places import output_path, state_directory
from tuimon.launch.resolve import resolve, user_python

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
    "ring_directory",
    "state_directory",
    "user_python",
]
