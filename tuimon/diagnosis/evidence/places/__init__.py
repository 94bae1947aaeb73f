"""Which functions take the time: of libraries that own the loop, of side work, of data that the training makes."""
