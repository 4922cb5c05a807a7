"""Sequence models: a history of items in, a score per item out."""
