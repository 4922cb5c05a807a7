"""Trained models in use."""
