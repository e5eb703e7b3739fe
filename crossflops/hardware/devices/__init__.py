"""The catalogue: devices, their names, and what each can do at most."""
