"""Two runs compared: what a change of the code did to the step, and how sure that is.

``runs`` prepares a run: its facts, its cells, its steps in batches without warm-up, and estimates from them.
``compare`` compares two sides; ``result`` is the outcome.
"""
