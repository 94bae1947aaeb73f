"""What of the memory of torch lives, by line: asked of the agent, recorded."""
