"""Count the backward passes of TensorFlow functions that have their own gradient.

In: a model. Out: the program of each gradient, counted by itself.
May import: frontends, ir, errors.
"""
