"""From files of rows to a first schema: guesses from a sample, sizes from all rows, written as TOML."""
