"""The code pairs of ``tuimon explain``, tried: the rule fires with the code before, and not with the code after.

What runs on a CPU is recorded (``recorded.py``): the page's code, set into a program of ``programs/``, under
``tuimon run``. The logs are kept in ``tests/data/pairs`` under the hash of that program's text, so that no log is of
other code. What needs a GPU is simulated (``simulated.py``).
"""
