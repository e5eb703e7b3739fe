"""Turn a target of TensorFlow into a model that can be called, with its default inputs.

In: a file, a name of keras.applications, or an object. Out: a model, its usual inputs, and what it
takes as one function of tensors.
May import: frontends, ir, load, patches, errors.
"""
