"""From a graph to its ledger: a cost for every node, what it moves and holds, polynomials.

In: a graph. Out: counts and memory figures, all exact integers.
"""
