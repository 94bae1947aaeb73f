"""Stacks: what frames mean, the trie of all that were sampled, their phases, and queries of a thread's samples."""
