"""Convert a frozen TensorFlow graph to ONNX by tf2onnx, operation by operation.

In: a frozen graph and its layers. Out: an ONNX model, which nodes came from which operation, and
what the graph says of gradients.
May import: frontends, operators, ir, load, patches, errors.
"""
