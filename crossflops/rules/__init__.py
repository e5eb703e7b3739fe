"""The definition of a rule, and the prediction of a tool's number from the calls of a model.

In: the trace of a model, or the nodes of a graph, and a convention, which is a list of rules.
Out: a prediction, one booking for each rule that speaks of a call.
May import: ir, errors.
"""
