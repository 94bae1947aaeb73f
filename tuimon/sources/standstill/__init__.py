"""The state of all processes of a run while none of them moves: taken once, when the monitor suspects a hang."""
