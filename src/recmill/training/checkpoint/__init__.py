"""The state of a run on disk: saved, restored, compared, converted."""
