"""The ranks of a training beside one another: which are looked at, who is late, or in turn, who stands still."""
