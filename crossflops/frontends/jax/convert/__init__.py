"""Convert the program of a JAX function to ONNX, equation by equation.

In: a function and its equations. Out: an ONNX model, which nodes came from which equation, and
what the equations say of gradients.
May import: frontends, operators, ir, load, patches, errors.
"""
