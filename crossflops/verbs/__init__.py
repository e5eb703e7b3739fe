"""Run the verbs: open a target, trace it, count it, predict the tools, run them, explain, report.

In: one `Request`, and the options of the verb as one frozen value. Out: a report.
May import: bench, causes, files, errors, export, facade, frontends, hardware, ir, ledger, limits,
load, operators, plugins, profiling, rebuild, reconcile, render, report, rules, targets, threads,
tools, workers; `facade`
only in `api`, and where a training loop is given its profile.
"""
