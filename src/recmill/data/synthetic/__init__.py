"""Synthetic logs with a known best answer."""
