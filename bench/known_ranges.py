"""Which user range each function of ``known_phases.py`` runs in: the truth for the join of samples to ranges."""

#: The innermost user range around each phase's function; None: it is in none.
RANGES = {"data": None, "forward": "step/model/encode", "backward": "step", "optimizer": "step/update", "other": "log"}
