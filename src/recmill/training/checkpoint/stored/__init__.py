"""Saved rows of tables that are larger than memory: described, checked, compacted, and taken out and in as Parquet."""
