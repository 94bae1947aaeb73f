"""A trace of whole steps by torch.profiler, taken at the monitor's order (``control/trace.py``)."""
