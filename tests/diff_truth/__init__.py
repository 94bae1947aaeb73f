"""Trainings that do not differ, and trainings that differ by a known factor: what ``tuimon diff`` says of them."""
