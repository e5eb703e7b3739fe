"""Run the verb `profile`: a training step, its count, and its time module by module.

In: a request and how to train, or times that were measured elsewhere; or a model in a training
loop. Out: a profile.
May import: verbs, facade, render, profiling, hardware, targets, frontends, tools, report, ledger,
ir, files, errors.
"""
