"""Causes have pages, and whatever can be booked has a cause."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from crossflops.causes import all_causes, find_cause
from crossflops.errors import UnknownNameError
from crossflops.tools.registry import all_conventions
from tests.reconcile.synthetic import trace


def test_causes_are_in_the_order_of_their_ids():
    """Each id stands once, behind its family."""
    ids = [entry.id for entry in all_causes()]
    assert ids == sorted(set(ids))
    assert all("." in cause_id or cause_id == "softmax" for cause_id in ids)


@pytest.mark.parametrize("one", all_causes(), ids=lambda entry: entry.id)
def test_every_cause_has_a_page(one):
    """A title that fits a table, a page of sentences, and references that can be looked up."""
    assert 0 < len(one.title) <= 60
    assert len(one.page) > 60
    assert one.page.endswith(".")
    assert find_cause(one.id) is one
    for reference in one.references:
        repository, _, number = reference.partition("#")
        assert repository.count("/") == 1
        assert number.isdigit()


def test_an_unknown_cause_lists_those_of_its_family():
    """A slip in the second half of an id shows what there is."""
    with pytest.raises(UnknownNameError) as caught:
        find_cause("norm.bacth")
    assert caught.value.message == "no cause is called 'norm.bacth'"
    assert "norm.batch" in caught.value.hint
    assert "pool.avg" not in caught.value.hint


def test_a_cause_of_no_family_lists_all():
    """Where nothing is near, everything is."""
    with pytest.raises(UnknownNameError) as caught:
        find_cause("nothing")
    assert all(entry.id in caught.value.hint for entry in all_causes())


def named_by_the_reconciler():
    """The texts in the code of the reconciler that have the form of an id."""
    texts = set()
    rooms = ("walk", "parameters", "alignment", "pairing", "steps")
    rooms = [f"reconcile.{name}" for name in rooms]
    rooms.append(
        "ledger.training.rule_of_thumb"
    )  # which sets the rule of thumb beside a training step
    for name in rooms:
        spec = find_spec(f"crossflops.{name}")
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        texts |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    families = {entry.id.partition(".")[0] for entry in all_causes()}
    return {
        text
        for text in texts
        if isinstance(text, str) and text.partition(".")[0] in families and "." in text
    }


def test_what_the_reconciler_books_has_a_cause():
    """The steps that are no clause of a convention: unit, dead code, shared parents, the mode."""
    named = named_by_the_reconciler()
    assert named >= {
        "unit.mac-vs-flop",
        "control.dead-code",
        "module.shared-parents",
        "scope.mode-forced-eval",
    }
    assert named <= {entry.id for entry in all_causes()}


def test_every_cause_is_booked_by_somebody():
    """A page that no convention and no step can lead to would never be read."""
    booked = named_by_the_reconciler()
    for convention in all_conventions():
        booked |= {convention.unseen} | ({convention.rounds} if convention.adds_up else set())
        booked |= {rule.cause for rule in convention.rules}
        booked |= {rule.again for rule in convention.rules if rule.again}
        if convention.parameters is not None and convention.parameters.extra is not None:
            booked |= set(convention.parameters.extra(trace()))
    assert booked == {entry.id for entry in all_causes()}
