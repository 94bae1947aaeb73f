"""The baseline: what was on the screen at one moment, beside which everything is shown from then on."""
