"""What programs such as coding assistants may query, over the Model Context Protocol: short answers, read-only."""
