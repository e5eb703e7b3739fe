"""The trees of a model of LightGBM, from its text.

Source: src/boosting/gbdt_model_text.cpp and src/io/tree.cpp of LightGBM.
"""

from typing import Any

from crossflops.errors import NormalizeError
from crossflops.frontends.boosting.trees import LEAF, BoostedTrees, Tree

_LOGISTIC = ("binary", "multiclassova", "cross_entropy")
_EXPONENTIAL = ("poisson", "gamma", "tweedie")


def lightgbm_trees(text: str, name: str) -> BoostedTrees:
    """Return the trees in the text of a LightGBM model file. Raises KeyError or ValueError if the
    text has another form.
    """
    blocks = text.split("\nend of trees", 1)[0].split("\nTree=")
    header = _block_fields(blocks[0])
    rows = [_block_fields(block) for block in blocks[1:]]
    trees = tuple(_tree_from_block(row) for row in rows)
    outputs = int(header["num_tree_per_iteration"])
    objective = header.get("objective", "").split(" ")[0]
    transform, classes = "NONE", 0
    if objective in _LOGISTIC:
        transform = "LOGISTIC"
    elif objective == "multiclass":
        transform = "SOFTMAX"
    elif objective in _EXPONENTIAL:
        transform = "EXP"
    if objective in ("multiclass", "multiclassova"):
        classes = int(header["num_class"])
    elif objective == "binary":
        classes = 2
    leaves = sum(len(tree.leaves) for tree in trees)
    return BoostedTrees(
        library="lightgbm",
        name=name,
        features=int(header["max_feature_idx"]) + 1,
        trees=trees,
        outputs=outputs,
        groups=tuple(number % outputs for number in range(len(trees))),
        classes=classes,
        transform=transform,
        averaged="average_output" in header,
        thresholds=sum(len(tree.left) for tree in trees) - leaves,
        values=leaves,
        dtype="float64",
    )


def _block_fields(block: str) -> dict[str, str]:
    """Return the lines `key=value` of a block of text as a dict; the value is "" for a line
    without one.
    """
    return dict(line.partition("=")[::2] for line in block.splitlines() if line)


def _tree_from_block(row: dict[str, Any]) -> Tree:
    """Return a tree from the fields of its block; inner nodes have the indices before those of the
    leaves.
    """
    leaves = int(row["num_leaves"])
    if row.get("is_linear", "0").strip() == "1":
        raise NormalizeError(
            "the LightGBM model has linear models in its leaves (linear_tree), which crossflops "
            "cannot count",
            "count a model that was trained with linear_tree=False",
        )
    if leaves < 2:
        return Tree((0,), (LEAF,), (LEAF,))
    inner = leaves - 1
    columns = {
        key: [int(word) for word in row[key].split()]
        for key in ("split_feature", "left_child", "right_child")
    }
    if any(len(column) != inner for column in columns.values()):
        raise ValueError(f"a tree of {leaves} leaves has tables of another length")

    def children_of_all_nodes(key: str) -> tuple[int, ...]:
        """Return the child index of every node for the key "left_child" or "right_child"; LEAF for
        leaves.
        """
        made = [child if child >= 0 else inner + ~child for child in columns[key]]
        if max(made) >= inner + leaves:
            raise ValueError("a branch leads to a leaf that is not there")
        return (*made, *(LEAF for _ in range(leaves)))

    features = (*columns["split_feature"], *(0 for _ in range(leaves)))
    return Tree(
        features, children_of_all_nodes("left_child"), children_of_all_nodes("right_child")
    )
