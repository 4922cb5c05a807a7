"""Layers, kernels and losses that several models share."""
