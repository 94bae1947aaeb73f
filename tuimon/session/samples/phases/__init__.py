"""The phase that each sample of a training thread is in: by what its stack shows, and by the lines of the loop."""
