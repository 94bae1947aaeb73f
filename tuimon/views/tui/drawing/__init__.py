"""Pure drawing: charts, colours, glyphs, lines, and the base of all panes."""
