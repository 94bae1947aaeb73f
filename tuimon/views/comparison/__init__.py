"""Two runs compared: the effect of a change of the code on the step, and its certainty.

``runs`` prepares a run: its facts, its cells, its steps in batches without warm-up, and estimates from them.
``compare`` compares two sides; ``result`` is the outcome.
"""
