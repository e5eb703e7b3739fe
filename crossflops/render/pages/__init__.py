"""A noun -> its page: what is said, and in which order. A file for each noun.

In: a report, an efficiency, a device. Out: blocks of text and tables that every format writes.
May import: render, hardware, tools, rules, causes, report, ir, errors.
"""
