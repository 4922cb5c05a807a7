"""Interactions of users with items to sequences, and sequences to windows."""
