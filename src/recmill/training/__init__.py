"""Training: settings, the loop, what it saves and how it is evaluated."""
