"""Probes and the conformance kit for tools that count TensorFlow graphs.

In: an adapter of such a tool. Out: tests that hold its convention against it.
May import: testing, plugins, frontends, tools, rules, ir.
"""
