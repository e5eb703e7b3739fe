"""What a rule is, and how a tool's number is predicted from what a model called.

In: the trace of a model, or the nodes of a graph, and a convention, which is a list of rules.
Out: a prediction, one booking for each rule that speaks of a call.
May import: ir, errors.
"""
