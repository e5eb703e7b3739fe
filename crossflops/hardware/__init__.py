"""Devices and their peaks, and what a count means on them. Rates are floats in FLOP/s.

In: a ledger or a number of MACs, a speed, the name of a device. Out: rates, shares, rooflines.
May import: plugins, report, ledger, operators, tools, ir, files, errors, limits.
"""
