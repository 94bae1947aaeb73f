"""The folder of the agent's files, for code that brings them into another process."""

import os

AGENT_FOLDER = os.path.dirname(os.path.abspath(__file__))
