"""Help authors of plugins to test: probe models, strategies for random models, and the conformance
kit.

In: an adapter. Out: tests that hold its convention against its tool. Needs the extra `[testing]`.
`formulas` holds formulas of one's own against references.
May import: reconcile, export, workers, plugins, frontends, tools, report, ledger, operators,
rules, ir, errors.
"""
