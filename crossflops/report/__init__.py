"""Hold the finished report, its tables, and the answers to questions about it.

In: a ledger, and accounts of tools. Out: values that go to JSON and back, and that `render` shows.
May import: operators, ir, errors.
"""
