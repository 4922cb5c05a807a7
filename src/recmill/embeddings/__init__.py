"""Embedding tables: what they are, and the engines that keep and update them."""
