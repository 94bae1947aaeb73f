"""Hooks around DataLoader: fetches, epochs, and the work of its workers."""
