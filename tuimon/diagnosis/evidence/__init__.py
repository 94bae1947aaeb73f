"""What the rules judge by."""
