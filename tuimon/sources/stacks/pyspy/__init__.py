"""py-spy: its windows, its dumps, what it writes and why it fails; and what takes its place without a GIL."""
