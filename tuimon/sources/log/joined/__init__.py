"""The logs of one run on several nodes, read as one."""
