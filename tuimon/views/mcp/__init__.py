"""What programs such as coding assistants may ask, over the Model Context Protocol: short answers, read-only."""
