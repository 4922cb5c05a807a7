"""Data: raw text to batches. Nothing in here needs torch."""
