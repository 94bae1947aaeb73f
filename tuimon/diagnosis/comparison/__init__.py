"""Two runs compared: what a change of the code did to the step, and how sure that is.

``side/`` takes from a run's session what is compared, and knows what other programs cost it; ``course/`` divides its
steps into batches of equal time without warm-up and trend, ``statistics/`` estimates from dependent steps.
``outcome/`` holds how many times as fast the later side is, ``table/`` what its phases, lines and findings do.
``compare`` puts all of it together, ``glance`` as much as the screen needs.
"""
