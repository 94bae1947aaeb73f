"""Traces of torch.profiler: what every operator and kernel of a few steps took, read from a file and summed up.

A trace is read once into columns (``events.py``), within bounds on memory whatever the file holds (``chunks.py``,
``reader.py``). Everything else is computed from these: which operator launched what (``nesting.py``), what the GPU
waited for (``gaps.py``), and tables for people (``summary.py``).
"""
