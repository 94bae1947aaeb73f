"""Rules about ranks: who is late, ranks that take turns, and what exchanging data costs."""
