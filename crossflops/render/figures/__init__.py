"""Draw pictures without a library: a result becomes shapes on a canvas, and these an SVG.

In: an account, tools beside each other, a training step, a roofline, a search for the best batch.
Out: a `Canvas`, which `svg` writes for a page, and `files` as an SVG or a PNG.
May import: render, report, ir, errors; matplotlib in `files`, for a PNG alone.
"""
