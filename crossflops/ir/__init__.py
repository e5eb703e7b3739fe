"""The nouns: frozen values that flow through crossflops, and nothing that acts on them.

Counts are Python integers of any size. The first float of the package appears in `hardware/`.
"""
