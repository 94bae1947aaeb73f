"""The page of a rule for people: its parts in reading order, as text, on a terminal, in a sheet, in HTML."""
