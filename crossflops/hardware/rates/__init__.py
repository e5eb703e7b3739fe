"""From a count and a speed to a rate, and its share of a peak: MFU, HFU and MBU.

In: a question with its work, its speed and its devices. Out: an efficiency, with what it assumes.
May import: hardware, report, ledger, tools, ir, errors.
"""
