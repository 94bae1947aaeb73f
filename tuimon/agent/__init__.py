"""Everything that runs inside the training process: standard library only, Python 3.9+, nothing outside this folder."""
