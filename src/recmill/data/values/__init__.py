"""Texts of categories that are strings, of which raw columns keep hashes."""
