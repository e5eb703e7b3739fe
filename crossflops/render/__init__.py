"""One noun in, one string out: a page for each noun, and what writes it down.

In: a report, or another noun. Out: text for a terminal, HTML, a picture, or what a file holds, in
the format that its suffix names (`formats`).
Imports: causes, commands, errors, ir, report, rules, tools.
"""
