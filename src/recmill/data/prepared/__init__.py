"""Prepared rows: writers and readers side by side, one format per file."""
