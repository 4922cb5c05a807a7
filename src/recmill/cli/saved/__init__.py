"""Verbs about what a run has saved."""
