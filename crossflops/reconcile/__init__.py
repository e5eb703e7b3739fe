"""Explain by causes why the number of a tool, or the count of another model, differs from the
native count.

In: a prediction, the trace and the ledger that it was made from, and what the tool printed.
Out: an account of named causes with exact amounts.
May import: frontends, operators, rules, ir, errors.
"""
