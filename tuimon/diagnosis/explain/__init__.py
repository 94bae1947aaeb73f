"""The meaning of each verdict: a page a rule; texts in ``pages/``, one file a family, figures from the rule table."""
