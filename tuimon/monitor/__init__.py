"""The Monitor: the sources of a run, polled on threads of their own, folded into one Session."""
