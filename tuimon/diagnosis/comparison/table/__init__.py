"""The rows below the sentence: phases, lines and findings, before and after."""
