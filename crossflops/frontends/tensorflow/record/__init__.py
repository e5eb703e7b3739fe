"""Trace a model under `tf.function`: its concrete function, and which layer ran when.

In: a model with its inputs. Out: the traced function with the layer of every name scope, frozen
with its variables as constants.
May import: frontends, ir, load, patches, errors.
"""
