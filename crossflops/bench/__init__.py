"""Running a model in a worker process: how fast it is, and where its time goes.

In: a model with its inputs, or its ONNX bytes. Out: times, kernels joined to nodes, seen sizes.
May import: workers, plugins, targets, frontends, report, load, ir, files, errors, limits;
frameworks when a model runs.
"""
