"""A training step that is watched: when each module works, forward, backward and again.

In: a torch module, and the block in which it runs one step. Out: the times of that step by module,
as plain numbers, and its calls with the backward passes through each; the module is as it was.
May import: bench, workers, frontends, ir, patches, errors; the frameworks when a step runs.
"""
