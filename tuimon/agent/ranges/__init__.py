"""Ranges that user code opens: ``tuimon.phase``, decorators, NVTX."""
