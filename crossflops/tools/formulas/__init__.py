"""Define formulas over the architecture of a language model as tools, one file for each group.

A file has the formula as its source computes it, and rules: what leads to it, amount by amount,
from the native count of the same step.

In: a `TokenSequence`. Out: FLOPs.
May import: rules, ir; and other files of this folder.
"""
