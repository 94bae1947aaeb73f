"""Orders to the agent inside a training, and what it answers."""
