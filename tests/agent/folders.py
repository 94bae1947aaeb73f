"""Helpers for folders of rings."""

import os
import time


def grow_old(folder):
    """Make the files of a folder an hour old."""
    for name in os.listdir(folder):
        os.utime(folder / name, (time.time() - 3600,) * 2)


def file_names(folder):
    """Names of the files in a folder, none where there is no folder."""
    return sorted(os.listdir(folder)) if folder.exists() else []
