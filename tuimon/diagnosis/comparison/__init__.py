"""Two runs compared: what a change of the code did to the step, and how sure that is.

``figures`` takes from a run's session what is compared, ``course/`` divides its steps into batches of equal time
without warm-up and trend, ``starved`` and ``undisturbed`` know what other programs cost it, ``statistics/`` estimates
what dependent steps tell, ``compare`` puts both sides together.
"""
