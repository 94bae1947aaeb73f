"""The cut of a training loop: from the markers of one thread to labelled stretches of time, and to steps."""
