"""The finished report, and the tables and questions that are asked of it.

In: a ledger, and accounts of tools. Out: values that go to JSON and back, and that `render` shows.
May import: operators, ir, errors.
"""
