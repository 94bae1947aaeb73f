"""One model of the step, from which the gain of each fix follows."""
