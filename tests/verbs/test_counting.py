"""`count`: inputs in every form, tables, folds."""

import subprocess
import sys

import numpy as np
import pytest

from crossflops import count
from crossflops.errors import InputError, UnknownNameError
from crossflops.ir.trace import Setting
from tests.models import Apply, AuxiliaryHead, Captioner, block, nn, torch
from tests.verbs.small import MACS, ROWS, linear

pytestmark = pytest.mark.torch


class TestInputs:
    """Inputs as Python callers give them."""

    @pytest.mark.parametrize(
        "inputs",
        [
            ROWS,
            (ROWS,),
            {"input": ROWS},
            ((ROWS,), {}),
            "2x4",
            ["input=2x4"],
        ],
        ids=["tensor", "tuple", "dict", "pair", "text", "texts"],
    )
    def test_every_way_to_give_them_is_the_same_model(self, inputs):
        """A tensor, a tuple, a list, a dict, (args, kwargs), texts: 24 MACs each."""
        report = count(nn.Linear(4, 3), inputs)
        assert report.macs == MACS
        assert [(spec.dtype, spec.shape) for spec in report.model.inputs] == [("float32", (2, 4))]

    @pytest.mark.parametrize("given", ["object", "target"])
    def test_a_file_gives_them(self, target, tmp_path, given):
        """For a model object as for a target."""
        np.savez(tmp_path / "v.npz", np.ones((5, 4), np.float32))
        model = linear() if given == "object" else f"{target}:make"
        assert count(model, inputs_file=str(tmp_path / "v.npz")).macs == 5 * 12

    def test_a_target_is_called_with_arguments(self, target):
        """And its inputs may be texts, tensors, or its own."""
        assert count(f"{target}:make", "2x4", arguments={"wide": 5}).macs == 40
        assert count(f"{target}:make", {"input": ROWS}, arguments={"wide": 5}).macs == 40
        assert count(f"{target}:both").macs == MACS

    def test_five_inputs_of_two_types(self):
        """An image captioner takes four floats and integers, from a dict or from five texts."""
        by_dict = count(Captioner(), Captioner.inputs())
        texts = [
            f"{name}={'x'.join(map(str, shape))}{':int64' * (name == 'words')}"
            for name, shape in Captioner.SHAPES.items()
        ]
        by_texts = count(Captioner(), texts)
        assert by_dict.macs == by_texts.macs == Captioner.MACS
        assert by_dict.model == by_texts.model
        assert by_dict.uncounted == ()
        assert {spec.name: (spec.dtype, spec.shape) for spec in by_dict.model.inputs} == {
            name: ("int64" if name == "words" else "float32", shape)
            for name, shape in Captioner.SHAPES.items()
        }

    def test_wrong_inputs_are_refused(self):
        """A shape that the model does not take, and a text that says nothing."""
        with pytest.raises(InputError, match="the model raised on these inputs"):
            count(linear(), torch.randn(2, 5))
        with pytest.raises(InputError, match="cannot read the input '2x'"):
            count(linear(), "2x")


class TestCount:
    """Counting alone."""

    def test_a_report_has_every_table(self):
        """Totals, operators, modules and nodes are of one model."""
        report = count(block(), torch.randn(1, 3, 16, 16))
        assert report.macs == sum(row.macs for row in report.by_op) == 55296
        assert report.macs == sum(row.macs for row in report.nodes) == report.modules[0].macs
        assert report.params == report.modules[0].params == 216 + 16
        assert [row.path for row in report.modules] == ["", "0", "1", "2"]
        assert report.macs_by_precision == {"float32": 55296}
        assert report.as_ is None

    def test_the_setting_is_in_force(self):
        """In training both heads run, in evaluation one, whatever the model's own mode."""
        model = AuxiliaryHead().eval()
        assert count(model, ROWS, setting=Setting(training=True)).macs == 128
        assert count(model.train(), ROWS).macs == 64
        assert model.training

    def test_a_fold_is_the_tools_number(self):
        """fvcore: 55296 and 2 per element of batch norm; FlopCounterMode: 2 per MAC."""
        image = torch.randn(1, 3, 16, 16)
        report = count(block(), image, as_="fvcore")
        assert (report.as_.tool, report.as_.total, report.as_.assumed) == ("fvcore", 59392, False)
        assert report.macs == 55296
        assert count(block(), image, as_="torch-flop-counter").as_.total == 110592

    def test_a_fold_is_made_in_the_mode_that_the_tool_forces(self):
        """thop counts evaluation, while the native count is that of training."""
        report = count(AuxiliaryHead(), ROWS, setting=Setting(training=True), as_="thop")
        assert (report.macs, report.as_.total) == (128, 64)

    def test_a_fold_depends_on_gradients_where_the_tool_does(self):
        """Without gradients the attention module is one kernel that nobody counts."""
        model = Apply(
            lambda s, x: s.m(x, x, x, need_weights=False)[0],
            m=nn.MultiheadAttention(32, 4, batch_first=True),
        )
        words = torch.randn(2, 10, 32)
        totals = [
            count(model, words, as_="torch-flop-counter", setting=Setting(grad=grad)).as_.total
            for grad in (True, False)
        ]
        assert totals == [163840, 0]

    def test_an_unknown_fold_is_refused_before_the_model_is_touched(self):
        """The name is looked up first."""
        with pytest.raises(UnknownNameError, match="no convention is known for the tool 'nobody'"):
            count("no.such:model", as_="nobody")

    def test_a_fold_needs_no_tool(self, target):
        """`--as thop@0.0.31` neither imports nor needs thop: its import is forbidden here."""
        code = (
            "import sys\n"
            "sys.modules['thop'] = sys.modules['fvcore'] = None\n"
            "from crossflops import count\n"
            f"found = count({target + ':make'!r}, '2x4', as_='thop@0.0.31')\n"
            "assert sys.modules['thop'] is None\n"
            "print(found.as_.tool, found.as_.edition, found.as_.total, found.macs)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["thop", "0.0.31", "0", "24"], done.stderr
