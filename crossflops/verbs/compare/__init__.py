"""Run the verb `compare`: run the tools, explain their numbers, and compare two models.

In: a request and a `Comparison`. Out: a report whose every difference is accounted for.
`compare.py` is the way from the one to the other; `plan.py` refuses what cannot be, `runner.py`
owns what runs beside it.
May import: verbs, errors, export, frontends, ir, ledger, limits, load, plugins, rebuild,
reconcile, render, report, rules, targets, threads, tools, workers.
"""
