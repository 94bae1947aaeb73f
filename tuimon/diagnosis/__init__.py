"""Rules that judge a Session: one file per family, each rule a function from Session to Finding or None."""
