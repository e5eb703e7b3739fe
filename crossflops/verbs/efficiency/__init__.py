"""Run the verb `efficiency`: whose work, which peaks, and the parts of an answer.

In: a question, and a request where a model is counted. Out: an efficiency by number and peak.
May import: verbs, files, errors, frontends, hardware, ir, ledger, reconcile, render, report,
rules, targets, tools.
"""
