"""Every process that runs a tool: what it is asked, how it answers, and how it is ended.

In: jobs, and a model with its inputs. Out: a profile or a failure for each job. `pool` runs tools
side by side, `observe` runs one in this process.
Imports: plugins, targets, frontends, ir, errors.
"""
