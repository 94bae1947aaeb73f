"""A training day in half an hour, under tuimon: what grows, what is lost, what is wrong at its end (``make soak``)."""
