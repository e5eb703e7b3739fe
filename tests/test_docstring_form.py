"""Docstrings begin as the guide says: an imperative or "Return", a noun for classes."""

import pytest

from tests.docstring_form import PACKAGE, ROOMS, find_violations

# A page prints the beginning of these as the equation of a rule.
EQUATIONS = {
    "_chains_of_paths", "keep_shapes_of_graph", "leaves_and_leftovers", "ptflops_chain_counts",
    "read_xla_program", "torchinfo_leaf_counts", "torchstat_base_wrapper_counts",
    "torchstat_wrapper_counts", "with_onnx_tool_shapes", "xla_total_flops",
}  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_of_a_room_have_the_form(room):
    """No function begins with an article, a question or a participle."""
    violations = list(find_violations(PACKAGE / room))
    assert [line for line in violations if line.split(": ")[1] not in EQUATIONS] == []


def test_what_breaks_the_form_is_found(tmp_path):
    """A function of a noun, one of a question, a class of a verb, and none that is right."""
    (tmp_path / "a.py").write_text(
        "def f(): 'The sum.'\n"
        "def g(): 'Whether it is so.'\n"
        "def h(): 'Return the sum.'\n"
        "class A:\n"
        "    'Return nothing.'\n"
        "    @property\n"
        "    def p(self): 'Whether it is so.'\n"
    )
    names = [line.split(": ")[1] for line in find_violations(tmp_path)]
    assert names == ["f", "g", "A"]
