"""A recording becomes the graph that is counted, by passes in a fixed order.

In: a `Recording`. Out: an ONNX program and the `Graph` that is read from it, with what training
knows of its nodes.
May import: frontends, operators, ir, patches, errors, limits.
"""
