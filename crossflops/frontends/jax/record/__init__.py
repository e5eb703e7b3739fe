"""A JAX model becomes one pure function of arrays, whichever way it was written.

In: a function, a module of Flax or a model of Keras, with its inputs. Out: the function with its
weights, and which module each equation of its program belongs to.
May import: frontends, ir, patches, errors.
"""
