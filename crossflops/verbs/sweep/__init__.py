"""Run the verb `sweep`: many models, inputs and tools, into one store that can be continued.

In: a suite and the folder of a store. Out: a `Sweep`: the rows of the suite, of which only those
were counted that the store did not have.
`sweep.py` is the way from the one to the other; `suite.py` reads which cases there are, `keys.py`
says what each row depends on, `items.py` counts a case in whatever process, `store.py` keeps rows.
May import: verbs, errors, files, frontends, ir, limits, operators, plugins, reconcile, report,
targets, threads, tools, workers.
"""
