"""Models: torch modules that know shapes and nothing of files or processes."""
