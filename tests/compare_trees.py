"""Compare two source trees with their names taken out: `python -m tests.compare_trees OLD NEW`.

A change that gives functions and variables other names leaves the rest of every syntax tree as it
was. This prints the files in which something else differs, and ends with 1 if there are any.
Docstrings, comments and the order of imported names are left out, since they follow the names.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

NAME_FIELDS = ("id", "arg", "attr", "name", "asname", "rest")


class NameRemover(ast.NodeTransformer):
    """Replace the identifiers of a tree with one mark each, and drop its docstrings."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Take out the names of one node and of all below it."""
        super().generic_visit(node)
        for field in NAME_FIELDS:
            if isinstance(getattr(node, field, None), str):
                setattr(node, field, "_")
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = ["_"] * len(node.names)
        if isinstance(node, ast.MatchClass):
            node.kwd_attrs = ["_"] * len(node.kwd_attrs)
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            node.body = body[1:]  # type: ignore[attr-defined]
        return node


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def tree_without_names(source: str) -> str:
    """Return a text of the syntax tree that is equal for sources that differ in names alone."""
    tree = NameRemover().visit(ast.parse(source))
    tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return ast.dump(tree)


def changed_files(old: Path, new: Path) -> Iterator[str]:
    """Yield the paths of the Python files that differ in more than names, or that one side lacks.

    Args:
        old: The folder of the source before the change.
        new: The folder of the source after it.
    """
    paths = {path.relative_to(root) for root in (old, new) for path in root.rglob("*.py")}
    for path in sorted(paths):
        sources = [root / path for root in (old, new)]
        if not all(source.is_file() for source in sources):
            yield f"{path} (on one side alone)"
        elif len({tree_without_names(source.read_text("utf-8")) for source in sources}) > 1:
            yield str(path)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not all(Path(folder).is_dir() for folder in sys.argv[1:]):
        sys.exit("error: two folders are needed\nhint: python -m tests.compare_trees OLD NEW")
    differing = list(changed_files(Path(sys.argv[1]), Path(sys.argv[2])))
    print("\n".join(differing) or "the syntax trees are alike")
    sys.exit(bool(differing))
