"""The verb `compare`: ask the tools, explain, set two models against each other.

In: a request and a `Comparison`. Out: a report whose every difference is accounted for.
May import: verbs, errors, export, frontends, ir, ledger, limits, load, plugins, rebuild,
reconcile, render, report, rules, targets, tools, workers.
"""
