"""One run of a model under `torch.export`: who called what, and the program that it became.

In: a model with its inputs. Out: a `Recording`: the exported program, calls on every level, the
module table, and facts of the run that a program does not hold.
May import: frontends, ir, patches, errors, threads.
"""
