"""A target of TensorFlow becomes a model that can be called: read, built, with its own inputs.

In: a file, a name of keras.applications, or an object. Out: a model, its usual inputs, and what it
takes as one function of tensors.
May import: frontends, ir, load, patches, errors.
"""
