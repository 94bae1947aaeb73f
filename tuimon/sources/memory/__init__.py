"""What of torch's memory is in use, by line: ordered from the agent, recorded."""
