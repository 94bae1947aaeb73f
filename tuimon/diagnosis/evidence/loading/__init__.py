"""Evidence on the data of a training: its DataLoader, the workers, and threads or processes that make it instead."""
