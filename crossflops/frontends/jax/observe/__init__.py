"""Run JAX models, and read the programs that XLA gets and makes of them.

In: a model and its function. Out: the calls of XLA's programs, a training step as a function, the
results of a run, and a model that can be timed.
May import: frontends, ir, load, patches, errors.
"""
