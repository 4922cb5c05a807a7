"""Optimizers, learning-rate schedules, precision and weight averaging."""
