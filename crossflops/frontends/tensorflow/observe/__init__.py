"""Run TensorFlow models, and freeze their training steps.

In: a model or its traced function. Out: the frozen graph of a training step, the results of a run,
and a model that can be timed.
May import: frontends, ir, load, patches, errors.
"""
