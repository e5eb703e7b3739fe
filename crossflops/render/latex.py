"""LaTeX: the tables of a page as booktabs has them, and its texts as footnotes beneath them."""

from crossflops.render.page import Code, Command, Heading, Page, Table, Text, Title
from crossflops.render.terminal import inert

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "µ": r"\textmu{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def latex(page: Page) -> str:
    """The page as LaTeX to put in with \\input: it needs \\usepackage{booktabs}."""
    lines = [r"% needs \usepackage{booktabs}"]
    for block in page.blocks:
        match block:
            case Table() if block.rows:
                lines += _tabular(block)
            case Title(parts):
                lines.append(rf"\par\noindent\textbf{{{', '.join(map(escaped, parts))}}}\par")
            case Heading(text):
                lines.append(rf"\par\medskip\noindent\textbf{{{escaped(text)}}}\par\smallskip")
            case Text(text):
                lines.append(rf"\par\smallskip\noindent{{\footnotesize {escaped(text)}\par}}")
            case Code(text) | Command(text):
                lines += [
                    rf"\par\noindent\texttt{{{escaped(line)}}}" for line in text.splitlines()
                ]
    return "\n".join(lines) + "\n"


def _tabular(table: Table) -> list[str]:
    columns = "".join("r" if column.right else "l" for column in table.columns)
    head = [escaped(column.head) for column in table.columns]
    rows = [[_indented(cell) for cell in row.cells] for row in table.rows]
    body = [f"  {' & '.join(cells)} \\\\" for cells in rows]
    top = [r"  \toprule"]
    if any(head):
        top += [f"  {' & '.join(head)} \\\\", r"  \midrule"]
    return [rf"\begin{{tabular}}{{{columns}}}", *top, *body, r"  \bottomrule", r"\end{tabular}"]


def _indented(cell: str) -> str:
    return r"\quad " * ((len(cell) - len(cell.lstrip(" "))) // 2) + escaped(cell)


def escaped(text: str) -> str:
    """The text as LaTeX sets it, letter by letter.

    >>> escaped("a_b & 50 %")
    'a\\\\_b \\\\& 50 \\\\%'
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in inert(" ".join(text.split())))
