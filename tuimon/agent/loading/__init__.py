"""Hooks around DataLoader: fetches, epochs, and what its workers do."""
