"""The verbs, in order: open a target, trace, count, predict, ask the tools, reconcile, report.

In: one `Request`, and the options of the verb as one frozen value. Out: a report.
May import: every room but `cli`. Only `api`, the verbs for Python callers, knows `facade`.
"""
