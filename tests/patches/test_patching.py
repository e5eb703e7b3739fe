"""Attributes are replaced for a block, whatever ends it; a target that is gone is named."""

from contextlib import ExitStack, suppress
from types import ModuleType, SimpleNamespace

import pytest

from crossflops.errors import PatchError
from crossflops.patches.patching import (
    Patch,
    original_attribute,
    patch_owner,
    patching_attribute,
    patching_attributes,
    patching_items,
)

LIBRARY = Patch("numpy", "numpy.linalg", ("own", "inherited", "table"), "test it", "numpy 2.4")


class Base:
    """Has what Owner inherits."""

    def inherited(self):
        """Return what no patch returns."""
        return "usual"


class Owner(Base):
    """Has descriptors, which must come back as they were."""

    @classmethod
    def own(cls):
        """Return the class."""
        return cls


@pytest.mark.parametrize("name", ["own", "inherited"])
def test_what_stood_in_the_owner_is_put_back_when_a_block_fails(name):
    """Descriptors come back as they were, and what was inherited is inherited."""
    before = dict(vars(Owner))
    with suppress(KeyError), patching_attribute(Owner, name, 3, LIBRARY):
        assert getattr(Owner, name) == 3
        raise KeyError
    assert dict(vars(Owner)) == before
    assert Owner.own() is Owner
    assert Owner().inherited() == "usual"


def test_patches_of_one_attribute_end_in_reverse_order():
    """The last one that was made ends first."""
    module = ModuleType("module")
    module.own = 0
    with ExitStack() as stack:
        for value in (1, 2, 3):
            stack.enter_context(patching_attribute(module, "own", value, LIBRARY))
        assert module.own == 3
    assert module.own == 0


def test_what_another_puts_there_meanwhile_stays_where_it_is_left():
    """Streams and hooks that a script replaces meanwhile are its own."""
    space = SimpleNamespace(own=0)
    with patching_attribute(space, "own", 1, LIBRARY, leave_foreign=True):
        space.own = 2
    assert space.own == 2
    with patching_attribute(space, "own", 1, LIBRARY):
        space.own = 3
    assert space.own == 2


def test_a_later_patch_that_fails_takes_the_earlier_ones_with_it():
    """A target that is gone leaves nothing replaced."""
    space = SimpleNamespace(own=0)
    with (
        pytest.raises(PatchError),
        patching_attribute(space, "own", 1, LIBRARY),
        patching_attribute(space, "inherited", 1, LIBRARY),
    ):
        pass
    assert vars(space) == {"own": 0}


@pytest.mark.parametrize(
    "act",
    [
        original_attribute,
        lambda *given: patching_attribute(*given[:2], 1, LIBRARY).patch_permanently(),
    ],
)
def test_a_target_that_is_gone_is_named_with_its_release(act):
    """The message has the path and the library, the hint the releases that have it."""
    with pytest.raises(PatchError) as caught:
        act(SimpleNamespace(), "own", LIBRARY)
    assert caught.value.message.startswith("numpy.linalg.own, which crossflops replaces, is not")
    assert "numpy 2.4" in caught.value.hint


@pytest.mark.parametrize("place", ["numpy.no_such_part", "numpy.linalg:NoSuchClass"])
def test_an_owner_that_is_gone_is_named(place):
    """A module and a class alike."""
    with pytest.raises(PatchError, match=place.replace(":", ".")):
        patch_owner(LIBRARY._replace(place=place))


def test_a_module_that_the_library_itself_lacks_is_no_target_that_is_gone():
    """An extra that is not installed has an error of its own."""
    with pytest.raises(ModuleNotFoundError):
        patch_owner(LIBRARY._replace(place="no_such_library.part"))


def test_a_name_that_is_not_declared_is_refused():
    """No attribute is replaced that the inventory does not name."""
    with pytest.raises(ValueError, match="other is none of the names"):
        patching_attribute(SimpleNamespace(other=1), "other", 2, LIBRARY)


def test_an_attribute_that_is_added_is_taken_away_again():
    """NumPy's `long`, for a tool that wants it."""
    space = SimpleNamespace()
    with patching_attribute(space, "own", 1, LIBRARY._replace(is_added=True)):
        assert space.own == 1
    assert not vars(space)


def test_items_of_a_table_are_put_back_and_new_ones_taken_away():
    """The tables of types of tf2onnx, and sys.modules."""
    table = {"a": 1, "b": 2}
    with suppress(KeyError), patching_items(table, {"a": 3, "c": 4}, LIBRARY):
        assert table == {"a": 3, "b": 2, "c": 4}
        raise KeyError
    assert table == {"a": 1, "b": 2}


def test_several_attributes_are_replaced_together_or_not_at_all():
    """The third is gone, so the first two stay as they were."""
    space, every = SimpleNamespace(a=1, b=2), LIBRARY._replace(names=("*",))
    with pytest.raises(PatchError), patching_attributes(space, {"a": 3, "b": 4, "gone": 5}, every):
        raise AssertionError("the block is not entered")
    assert vars(space) == {"a": 1, "b": 2}
    with suppress(KeyError), patching_attributes(space, {"a": 3, "b": 4}, every):
        assert vars(space) == {"a": 3, "b": 4}
        raise KeyError
    assert vars(space) == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="not declared"):
        patching_attributes(space, {"a": 3}, LIBRARY._replace(names=("b",)))
