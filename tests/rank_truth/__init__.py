"""Does tuimon name the late rank, its phase and its line? Trainings of some gloo ranks with a planted late one."""
