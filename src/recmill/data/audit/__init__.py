"""What is wrong with the data, found before anyone trains on it."""
