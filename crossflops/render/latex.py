"""Write LaTeX: the tables of a page in the style of booktabs, with its texts as notes below."""

import re
from collections.abc import Iterable

from crossflops.render.page import Code, Column, Command, Heading, Page, Table, Text, Title
from crossflops.render.terminal import escape_control_chars

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
_FIGURE = re.compile(r"-|\d+(\.\d+)?")
_QUOTED = re.compile(r'"([^"]*)"')


def latex(page: Page) -> str:
    """Return a page as LaTeX for \\input; it needs the package booktabs."""
    lines = [r"% needs \usepackage{booktabs}"]
    for block in page.blocks:
        match block:
            case Table() if block.rows:
                lines += _latex_tabular_lines(block)
            case Title(parts):
                lines.append(rf"\par\noindent\textbf{{{', '.join(map(escape_latex, parts))}}}\par")
            case Heading(text):
                lines.append(
                    rf"\par\medskip\noindent\textbf{{{escape_latex(text)}}}\par\smallskip"
                )
            case Text(text):
                lines.append(
                    r"\par\smallskip\noindent\parbox[t]{\linewidth}"
                    rf"{{\footnotesize {escape_latex(text)}}}\par"
                )
            case Code(text) | Command(text):
                lines += [
                    rf"\par\noindent\texttt{{{escape_latex(line)}}}" for line in text.splitlines()
                ]
    return "\n".join(lines) + "\n"


def _latex_tabular_lines(table: Table) -> list[str]:
    """Return the lines of a LaTeX tabular environment for a table, in booktabs style."""
    columns = "".join("r" if column.right else "l" for column in table.columns)
    cells = [[_latex_cell(cell) for cell in row.cells] for row in table.rows]
    aligned = (_align_decimal_points(column) for column in zip(*cells, strict=True))
    body = [_latex_row(row) for row in zip(*aligned, strict=True)]
    top = [r"  \toprule", *map(_latex_row, _latex_head_lines(table.columns)), r"  \midrule"]
    if not any(column.head for column in table.columns):
        top = top[:1]
    # @{}: the rules are as wide as what stands between them, as booktabs advises
    return [
        rf"\noindent\begin{{tabular}}{{@{{}}{columns}@{{}}}}", *top, *body, r"  \bottomrule",
        r"\end{tabular}",
    ]  # fmt: skip


def _latex_row(cells: Iterable[str]) -> str:
    """Return the cells as one line of a LaTeX table, separated by "&"."""
    return f"  {' & '.join(cells)} \\\\"


def _latex_head_lines(columns: Iterable[Column]) -> list[tuple[str, ...]]:
    """Return the lines of cells in the head of a LaTeX table; heads of numbers wrap at words."""
    stacks = [[*map(escape_latex, c.head.split() if c.right else [c.head])] for c in columns]
    height = max(map(len, stacks))
    return list(zip(*([""] * (height - len(stack)) + stack for stack in stacks), strict=True))


def _align_decimal_points(column: tuple[str, ...]) -> list[str]:
    """Return a column of numbers padded so that decimal points align; other columns unchanged."""
    if not all(map(_FIGURE.fullmatch, column)):
        return list(column)
    fractions = ["".join(cell.partition(".")[1:]) for cell in column]
    longest = max(fractions, key=len)
    blanks = (longest[len(fraction) :] for fraction in fractions)
    return [
        f"{cell}\\phantom{{{blank}}}" if blank else cell
        for cell, blank in zip(column, blanks, strict=True)
    ]


def _latex_cell(cell: str) -> str:
    r"""Return a cell escaped for LaTeX, with its leading spaces as \quad."""
    return r"\quad " * ((len(cell) - len(cell.lstrip(" "))) // 2) + escape_latex(cell)


def escape_latex(text: str) -> str:
    """Return the text with LaTeX's special characters escaped and its quotes as LaTeX quotes.

    >>> escape_latex("a_b & 50 %")
    'a\\\\_b \\\\& 50 \\\\%'
    """
    letters = (
        _SPECIAL.get(letter, letter) for letter in escape_control_chars(" ".join(text.split()))
    )
    return _QUOTED.sub(r"``\1''", "".join(letters))
