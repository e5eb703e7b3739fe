"""Probes and the conformance kit for tools that count programs of JAX.

In: an adapter of such a tool. Out: tests that hold its convention against it.
May import: testing, reconcile, plugins, frontends, tools, rules, ir.
"""
