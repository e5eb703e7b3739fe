"""How often a tool books one module: paths in the tree of children."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.trace import (
    ALONG_CHAINS,
    ALONG_CHAINS_SQUARED,
    ONCE_IN_EACH,
    Module,
    Parameter,
    child_paths,
    child_paths_squared,
)
from crossflops.tools.torchinfo import torchinfo_leaf_counts


def table(*children, unregistered=()):
    """A module table from the children of each row."""
    return tuple(
        Module(
            id=number,
            names=() if number in unregistered else (str(number),),
            bases=("x.Y",),
            params=(),
            children=tuple((f"c{place}", child) for place, child in enumerate(own)),
            training=False,
            settings={},
        )
        for number, own in enumerate(children)
    )


def test_a_tree_has_one_path_to_everything():
    """Nothing is shared: once each."""
    assert child_paths(table([1, 2], [3], [], [])) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_two_parents_are_two_paths():
    """thop hooks such a module twice and sums it twice: four times its work."""
    shared = table([1, 2], [3], [3], [])
    assert child_paths(shared)[3] == 2
    assert child_paths_squared(shared)[3] == 4


def test_two_names_in_one_parent_are_one_path():
    """`children()` gives a module once, however many names it has there."""
    assert child_paths(table([1, 1], [])) == {0: 1, 1: 1}


def test_paths_multiply_along_the_way():
    """Three ways to a parent and two from there are six."""
    assert child_paths(table([1, 2, 3], [4], [4], [4], [5, 6], [7], [7], []))[7] == 6


def test_what_is_registered_nowhere_has_no_path():
    """A module in a plain list is never hooked, nor is what lies beneath it."""
    paths = child_paths(table([], [2], [], unregistered=(1,)))
    assert paths == {0: 1, 1: 0, 2: 0}


def test_what_stands_in_the_number_of_each_parent():
    """Module 4 is in 3 alone, which is in 1 and in 2: two chains from the root, one from each."""
    shared = table([1, 2], [3], [3], [4], [])
    assert ALONG_CHAINS.within(shared)[4] == {0: 2, 1: 1, 2: 1, 3: 1, 4: 1}
    assert ALONG_CHAINS_SQUARED.within(shared)[4] == {0: 4, 1: 2, 2: 2, 3: 2, 4: 2}
    assert ONCE_IN_EACH.within(shared)[4] == dict.fromkeys(range(5), 1)


@st.composite
def graphs(draw):
    """Children that always have a higher number: no module contains itself."""
    size = draw(st.integers(1, 7))
    return table(
        *(
            draw(st.lists(st.integers(number + 1, size - 1), max_size=4))
            if number + 1 < size
            else []
            for number in range(size)
        )
    )


def walked(rows):
    """Visits per module of the walk that thop does: children() at every step."""
    visits = dict.fromkeys(range(len(rows)), 0)

    def visit(number):
        visits[number] += 1
        for child in dict.fromkeys(child for _, child in rows[number].children):
            visit(child)

    visit(0)
    return visits


@given(graphs())
def test_paths_are_the_visits_of_a_walk(rows):
    """Counting paths equals walking the tree along every one of them."""
    assert child_paths(rows) == walked(rows)


def test_a_leaf_is_registered_and_has_no_children_but_empty_containers():
    """`any(module.children())` is false for a module whose only child has the length 0."""
    sequential = ("torch.nn.modules.container.Sequential",)
    rows = table([1, 2, 3], [4], [], [5], [], [], [], unregistered=(6,))
    empty = msgspec.structs.replace(rows[4], bases=("my.Chain", *sequential))
    filled = msgspec.structs.replace(
        rows[5],
        bases=("torch.nn.modules.container.ParameterList",),
        params=(Parameter("0", (3,), 0),),
    )
    leaves = torchinfo_leaf_counts((*rows[:4], empty, filled, rows[6]))
    assert leaves == {0: 0, 1: 1, 2: 1, 3: 0, 4: 1, 5: 1, 6: 0}


@given(graphs())
def test_the_root_has_as_many_as_the_whole(rows):
    """The formula for the rows and that for the total are two readings of one tree."""
    for times in (ALONG_CHAINS, ALONG_CHAINS_SQUARED, ONCE_IN_EACH):
        counts = {module: inner.get(0, 0) for module, inner in times.within(rows).items()}
        assert counts == times.of(rows)
