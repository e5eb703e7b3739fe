"""ptflops 0.7.5 with its two backends, which count apart: "pytorch" and "aten".

In: a Site, which is a call where it stands. Out: two conventions.
May import: tools, rules, ir.
"""

from crossflops.tools.ptflops import aten, pytorch

CONVENTIONS = (aten.tool.convention, pytorch.tool.convention)
