"""Everything that runs inside the training process: standard library only, Python 3.9+, nothing outside this folder."""

import os

#: For code that brings the agent into another process.
AGENT_FOLDER = os.path.dirname(os.path.abspath(__file__))
