"""The steps of a run over time: batches of equal length, without warm-up and trend, and what disturbed them."""
