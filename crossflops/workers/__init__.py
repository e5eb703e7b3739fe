"""Every process that runs a tool: what it is asked to do, how it answers, and how it is ended.

In: jobs, and a model with its inputs. Out: a profile or a failure for each job. `pool` runs tools
side by side: `process` and `warm` are our side of a worker and of a parent that forks workers,
`worker` and `parent` are theirs. `observe` runs a tool in this process. `series` and
`warm_executor` call functions in processes, `cluster_executors` on clusters.
May import: plugins, targets, frontends, operators, ir, files, patches, errors, limits, threads.
"""
