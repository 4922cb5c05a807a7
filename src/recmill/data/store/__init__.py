"""Formats of prepared rows: a writer and its reader side by side, one format per file."""
