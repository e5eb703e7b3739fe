"""The verbs, in order: open a target, trace, count, predict, ask the tools, reconcile, report.

In: one `Request`, and the options of the verb as one frozen value. Out: a report.
May import: bench, errors, export, facade, frontends, hardware, ir, ledger, load, plugins, rebuild,
reconcile, render, report, rules, targets, tools, workers; `facade` only in `api`.
"""
