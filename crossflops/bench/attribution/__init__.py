"""What a runtime executed, joined to what was counted.

In: a profile of onnxruntime or a trace of torch.profiler, and the ledger. Out: a row per kernel.
May import: bench, report, load, ir, files, errors.
"""
