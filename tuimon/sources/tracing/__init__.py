"""Takes a trace of a training through its agent, and writes the file that people keep."""
