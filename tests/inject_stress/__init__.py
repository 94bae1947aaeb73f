"""Hooks brought into trainings of awkward shapes and withdrawn, again and again: is none harmed?"""
