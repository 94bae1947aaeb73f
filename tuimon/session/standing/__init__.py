"""Standstills: where all ranks stood while nothing moved."""
