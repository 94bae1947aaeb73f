"""Answers for assistants, over the protocol's own client."""
