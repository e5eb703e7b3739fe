"""What is known of each counter: one file for a tool, with its rules and where they are read.

In: nothing. Out: the conventions of the tools, by name, from `registry`.
May import: rules, ir, errors.
"""
