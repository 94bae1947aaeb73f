"""A log fit to send: stand-ins for what is the user's, and the verdict kept."""
