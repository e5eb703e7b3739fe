"""Pictures without a library: a noun becomes shapes on a canvas, and these an SVG.

In: an account, tools beside each other, a training step, a roofline. Out: a `Canvas`, which `svg`
writes for a page or a file, and `crossflops.render.plots` paints as a PNG.
May import: render, report, ir, errors; no matplotlib.
"""
