"""What a step moves to and from memory, and how fast it can be at most.

In: a graph with its ledger, a device, the name of a byte model. Out: a roofline, node by node.
May import: hardware, report, operators, ir, errors.
"""
