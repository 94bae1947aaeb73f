"""Traces of torch.profiler: what every operator and kernel of a few steps took, read from a file and summed up.

A trace is read once into columns (``events.py``), within bounds on memory whatever the file holds (``reader.py``).
Everything else is computed from these (``summary.py``): which operator launched what, what the GPU and the CPU waited
for, and tables for people.
"""
