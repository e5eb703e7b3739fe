"""The backward passes of custom autograd functions, which no graph tells: run without values.

In: a model with its inputs, and which of its weights are trained. Out: what each function runs,
counted operator by operator as a program of its own.
May import: frontends, operators, ir, errors.
"""
