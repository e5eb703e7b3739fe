"""Real runs of a model, which show what an export does not show.

In: a model and the recording of its run. Out: the calls of a run as a tool sees them (dispatched
operators, the graph of torch.jit, bodies of custom operators), set beside those of the recording.
May import: frontends, ir, patches, errors.
"""
