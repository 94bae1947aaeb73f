"""Two runs compared: what a change of the code did to the step, and how sure that is.

``runs`` makes a run ready: what is known of it, its cells, its steps in batches without warm-up, and estimates from
them. ``compare`` holds two sides against each other; ``result`` is what it finds.
"""
