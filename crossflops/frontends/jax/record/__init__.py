"""Turn a JAX model of any kind into one pure function of arrays.

In: a function, a module of Flax or a model of Keras, with its inputs. Out: the function with its
weights, and which module each equation of its program belongs to.
May import: frontends, ir, patches, errors.
"""
