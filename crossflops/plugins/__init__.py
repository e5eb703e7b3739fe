"""Adapters, and where they are installed: here, or for another interpreter.

In: entry points of the group `crossflops.adapters`. Out: adapters, or the failure to have one.
Import from the modules: `adapter` for the author of a plugin, `discovery` for what is installed.
May import: frontends, tools, operators, rules, ir, files, errors.
"""
