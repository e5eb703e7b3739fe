"""The verb `bench`: run a model, and account for the time of a run.

In: a request and `Conditions`, or a trace that is there. Out: a bench.
May import: verbs, bench, files, errors, frontends, hardware, ir, limits, load, render, report,
targets.
"""
