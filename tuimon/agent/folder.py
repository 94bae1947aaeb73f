"""Where the agent's files lie, for what brings them into another process."""

import os

AGENT_FOLDER = os.path.dirname(os.path.abspath(__file__))
