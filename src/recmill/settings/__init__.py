"""What a user can say: one frozen class for each section of settings."""
