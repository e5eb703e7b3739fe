"""Define the known facts of each tool: one module for a tool, with its rules and their sources.

In: nothing. Out: the conventions of the tools, by name, from `registry`.
May import: operators, rules, ir, errors.
"""
