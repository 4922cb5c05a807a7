"""Segments to shuffled, resumable batches."""
