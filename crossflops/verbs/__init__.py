"""The verbs, in order: open a target, trace, count, predict, ask the tools, reconcile, report.

In: what a caller asks for. Out: a report. `api` is what Python callers use.
"""
