"""The meaning of each verdict: one page per rule; ``pages/`` has the texts by family, the rule table the figures."""
