"""What a run tells: records in files, the machine it ran on, and the line a person watches."""
