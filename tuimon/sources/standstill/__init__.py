"""What all processes of a run are at while none of them moves: taken once, when the monitor suspects a hang."""
