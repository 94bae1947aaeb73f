"""One model of the step: from it follows what each fix would gain."""
