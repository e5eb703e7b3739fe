"""Turn each kind of result into its page: what is shown, and in which order.

In: a report, an efficiency, a device. Out: blocks of text and tables that every format writes.
May import: render, hardware, tools, rules, causes, report, ir, errors.
"""
