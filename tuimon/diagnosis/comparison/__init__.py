"""Two runs compared: what a change of the code did to the step, and how sure that is.

``figures`` takes from a run's session what is compared, ``batches`` divides its steps into stretches of equal time,
``side`` estimates from them, with ``estimates``. ``speed`` says how much faster the later side is, ``rows``,
``lines`` and ``findings`` what has become of its parts, ``words`` puts it in sentences; ``compare`` does all of it.
"""
