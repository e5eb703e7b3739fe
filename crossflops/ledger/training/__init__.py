"""The work of a training step, node by node: what has a gradient, and what that gradient costs.

`weights` says which stored tensors are trained, `flow` which values have a gradient, `functions`
which nodes have a backward pass of their own, `recomputation` what checkpoints run again,
`loops` what the runs of a body do, `work` what all of that costs, and `rule_of_thumb` how it
differs from 3 x forward.
"""
