"""The profile of a training loop that the user wrote: a profiler in it, callbacks, a whole script.

In: a model in its loop, or the command of a training script. Out: a profile of one step.
May import: verbs, facade, render, profiling, targets, tools, report, ir, files, errors.
"""
