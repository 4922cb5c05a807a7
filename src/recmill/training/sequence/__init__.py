"""Sequence models as a job: steps, evaluation, plan."""
