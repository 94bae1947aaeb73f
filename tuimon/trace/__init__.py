"""Traces of torch.profiler: how long every operator and kernel of a few steps took, read from a file and summed up.

A trace is read once into columns (``events.py``), within bounds on memory whatever the file holds (``reader.py``).
All else is computed from the columns (``summary.py``): which operator launched what, what the GPU and the CPU waited
for, and tables for people.
"""
