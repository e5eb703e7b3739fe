"""The work of a training step, node by node: what has a gradient, and what that gradient costs.

`weights` says which stored tensors are trained, `flow` which values have a gradient, `functions`
which nodes have a backward pass of their own, `recomputation` what checkpoints run again,
`loops` what the bodies of nodes take and hand on, `work` what all of that costs, and
`rule_of_thumb` how it differs from 3 x forward.

In: a graph, its trace, which weights are trained. Out: `Steps`, exact integers by node.
May import: ledger, operators, ir, errors.
"""
