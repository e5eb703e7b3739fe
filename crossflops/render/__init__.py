"""A page for each noun, and a file for each format: the room that makes text for people.

In: a report, or another noun. Out: text for a terminal, HTML, a picture, or what a file holds, in
the format that its suffix names (`formats`).
May import: hardware, tools, rules, causes, report, ir, commands, files, errors; rich in
`terminal`, jinja2 in `html`, matplotlib in `figures.files`, for a PNG alone.
"""
