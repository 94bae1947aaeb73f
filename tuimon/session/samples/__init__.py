"""Stack samples of a process: windows, threads, set-up, and how they divide its time."""
