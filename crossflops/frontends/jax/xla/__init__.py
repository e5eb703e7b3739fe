"""The HLO programs of XLA, as calls.

In: the text of a compiled program. Out: its instructions, and calls with what XLA knows of each.
May import: frontends, load, ir, errors.
"""
