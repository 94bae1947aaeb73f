"""The rule about work beside the training: side work outside the phases, and evaluation."""
