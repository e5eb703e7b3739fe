"""What a step moves, and how fast it can be at most."""
