"""The module table: every object once, with all its names and its own parameters."""

import pytest

from crossflops.frontends.converted import parameter_size_fields
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from tests.models import Apply, Holder, nn, torch

pytestmark = pytest.mark.torch


def table(model):
    """The rows of a model."""
    return ModuleIndex(model).module_descriptions


def test_rows_are_in_the_order_of_the_model():
    """The root is row 0 and has the empty name."""
    rows = table(nn.Sequential(nn.Linear(2, 3), Holder(nn.ReLU())))
    assert [row.path for row in rows] == ["", "0", "1", "1.inner"]
    assert [row.id for row in rows] == [0, 1, 2, 3]
    assert rows[0].children == (("0", 1), ("1", 2))
    assert rows[2].children == (("inner", 3),)


def test_a_module_under_two_names_is_one_row():
    """An alias is a name more, and its parameters are counted once."""
    layer = nn.Linear(2, 3)
    rows = table(nn.ModuleDict({"a": layer, "b": layer, "c": Holder(layer)}))
    (row,) = [row for row in rows if row.params]
    assert row.names == ("a", "b", "c.inner")
    assert parameter_size_fields(rows)["params"] == 2 * 3 + 3


def test_tied_parameters_are_counted_once():
    """Two modules, one storage: 4*4 and the two biases of 4."""
    first, two = nn.Linear(4, 4), nn.Linear(4, 4)
    two.weight = first.weight
    rows = table(nn.Sequential(first, two))
    weights = [param for row in rows for param in row.params if param.name == "weight"]
    assert weights[0].storage == weights[1].storage
    assert [row.path for row in rows if row.params] == ["0", "1"]
    assert parameter_size_fields(rows)["params"] == 16 + 4 + 4


def test_parameters_of_the_module_itself_are_its_own():
    """Neither those of children nor buffers are among them."""
    model = Holder(nn.BatchNorm2d(8))
    model.scale = nn.Parameter(torch.ones(3))
    root, norm = table(model)
    assert [(param.name, param.shape) for param in root.params] == [("scale", (3,))]
    assert [param.name for param in norm.params] == ["weight", "bias"]
    assert parameter_size_fields((root, norm))["params"] == 3 + 8 + 8


def test_settings_are_plain_attributes():
    """What rules ask for: sizes, flags and modes; no private ones, no objects."""
    row = table(nn.Conv2d(3, 8, (3, 5), padding="same", groups=1))[0]
    assert row.settings["in_channels"] == 3
    assert row.settings["kernel_size"] == [3, 5]
    assert row.settings["padding"] == "same"
    assert row.bases[0] == "torch.nn.modules.conv.Conv2d"
    assert not [name for name in row.settings if name.startswith("_") or name == "training"]
    assert "output_size" not in table(nn.AdaptiveAvgPool2d((None, 5)))[0].settings


def test_the_mode_is_that_of_each_module():
    """Training flags may differ within a model."""
    model = nn.Sequential(nn.Dropout(), nn.Dropout()).train()
    model[1].eval()
    assert [row.training for row in table(model)] == [True, True, False]


def test_what_is_met_later_gets_a_row_without_names():
    """A module that is registered nowhere is found by the object, once."""
    index = ModuleIndex(Apply(lambda s, x: x))
    stray = nn.Linear(2, 2)
    assert index.row(stray) == index.row(stray)
    assert index.row(stray).names == ()
    assert len(index.module_descriptions) == 2


def test_the_mask_of_a_pruned_parameter_is_counted():
    """`torch.nn.utils.prune` renames the parameter and keeps a mask of zeros and ones beside it.

    Whoever counts parameters may mean those that are left.
    """
    from torch.nn.utils import prune

    layer = nn.Linear(4, 3)
    mask = torch.ones(3, 4)
    mask[0] = 0
    prune.custom_from_mask(layer, "weight", mask)
    kept = {param.name: param.kept for param in ModuleIndex(layer).module_descriptions[0].params}
    assert kept == {"weight_orig": 8, "bias": None}
