"""A target of PyTorch becomes a model that can be run: built, unwrapped, with inputs.

In: a name, a config or a `torch.nn.Module`. Out: a model that is left as it was, on fake tensors
where it has no weights, and its inputs.
May import: frontends, ir, patches, errors, limits, threads.
"""
