"""Exports of a recorded run to other tools' formats: one file per format."""
