"""Our functions that stand between the program and torch: no call by ``stacklevel`` counts their frames.

warnings, and logging from Python 3.11 on, pass over the frames of Python's import system, which they know by two words
in the names of its files: ``importlib`` and ``_bootstrap`` (``warnings._is_internal_frame``). Hence the name.
"""
