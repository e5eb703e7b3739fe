"""What this machine says of itself, and what it does."""
