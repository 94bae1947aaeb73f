"""Brings the agent into a Python process that runs already: by ``sys.remote_exec`` from Python 3.14 on, by gdb before.

1. ``target`` examines the process, without touching it, and refuses with cause and next step.
2. ``inject`` makes a private folder with the script that the process is to run (``tuimon/agent/boot.py``).
3. That, by ``sys.remote_exec``, or ``gdb`` has the process run it at the next moment at which its interpreter allows.
4. The script leaves its answer in the folder. Once the folder is gone, the script does nothing.
"""
