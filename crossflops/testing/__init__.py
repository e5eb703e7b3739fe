"""Shipped to whoever writes a convention or a plugin: probe models, strategies, the kit."""
