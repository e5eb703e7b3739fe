"""The backward passes of functions of JAX that bring their own derivative.

In: a model. Out: the program of each derivative, counted by itself.
May import: frontends, ir, errors.
"""
