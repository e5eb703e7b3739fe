"""The backward passes of functions of TensorFlow that bring their own gradient.

In: a model. Out: the program of each gradient, counted by itself.
May import: frontends, ir, errors.
"""
