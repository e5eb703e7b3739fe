"""The HLO programs of XLA: read, and told as calls."""
