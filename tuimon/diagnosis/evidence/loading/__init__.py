"""Where the data of a training comes from: its DataLoader, the workers of that, and who makes it in their place."""
