"""Verbs that rewrite files of rows."""
