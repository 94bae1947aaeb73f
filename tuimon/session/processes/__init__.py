"""The run's processes, their threads, and the machines they run on."""
