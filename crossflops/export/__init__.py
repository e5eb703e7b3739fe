"""Files that are no reports: the normalized or annotated model, and node data for viewers.

In: a model in memory or an ONNX file, with its counts. Out: a file that is whole, or not there.
May import: frontends, load, ir, files, errors; onnx and onnx_ir.
"""
