"""The ranks of a training beside one another: which are judged, which are late, or late in turn, which stand still."""
