"""Turn a result into a page of text and tables, and the page into a text or a file.

In: a report, or another noun. Out: text for a terminal, HTML, a picture, or what a file holds, in
the format that its suffix names (`formats`).
May import: hardware, tools, rules, causes, report, ir, commands, files, errors; rich in
`terminal`, jinja2 in `html`, matplotlib in `figures.files`, for a PNG alone.
"""
