"""A graph becomes its ledger: a cost for every node, memory figures, polynomials.

In: a graph. Out: counts, memory traffic and peak activation memory, all exact integers.
May import: operators, ir, errors.
"""
