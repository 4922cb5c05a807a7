"""Bytes of delimited text to raw columns: kernels, and the reference parser they are tested against."""
