"""The nouns: frozen values that flow through crossflops, and nothing that acts on them.

In: plain values. Out: graphs, traces, ledgers, conventions, accounts, devices, rooflines.
Counts are Python integers of any size; the first float of the package appears in `hardware/`.
May import: errors.
"""
