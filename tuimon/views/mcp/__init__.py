"""Answers to programs such as coding assistants, over the Model Context Protocol: short and read-only."""
