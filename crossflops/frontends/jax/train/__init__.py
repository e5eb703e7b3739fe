"""Count the backward passes of JAX functions that have a custom derivative.

In: a model. Out: the program of each derivative, counted by itself.
May import: frontends, ir, errors.
"""
