"""Inputs as they are written, made, read and given."""

import numpy as np
import pytest

from crossflops.errors import InputError
from crossflops.frontends.inputs import parse_inputs, to_args_and_kwargs, to_call_arguments
from crossflops.frontends.pytorch.load.inputs import make_model_arguments, tensors_from_npz
from crossflops.ir.graph import TensorSpec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1x3x224x224", TensorSpec("0", "float32", (1, 3, 224, 224), "input")),
        ("5", TensorSpec("0", "float32", (5,), "input")),
        ("ids=1x128:int64", TensorSpec("ids", "int64", (1, 128), "input")),
        ("2x3:bfloat16", TensorSpec("0", "bfloat16", (2, 3), "input")),
        ("scalar", TensorSpec("0", "float32", (), "input")),
        ("step=scalar:int32", TensorSpec("step", "int32", (), "input")),
        ("mask=4:bool", TensorSpec("mask", "bool", (4,), "input")),
        ("in:0=1x3", TensorSpec("in:0", "float32", (1, 3), "input")),
        ("in:0=1x3:int64", TensorSpec("in:0", "int64", (1, 3), "input")),
        ("a=b=1x3", TensorSpec("a=b", "float32", (1, 3), "input")),
        ("1x3:int64=2x3", TensorSpec("1x3:int64", "float32", (2, 3), "input")),
        (" 0x3 ", TensorSpec("0", "float32", (0, 3), "input")),
        ("(1, 3, 32, 32)", TensorSpec("0", "float32", (1, 3, 32, 32), "input")),
        ("1,3,224,224", TensorSpec("0", "float32", (1, 3, 224, 224), "input")),
        ("[1, 3]", TensorSpec("0", "float32", (1, 3), "input")),
        ("(5,)", TensorSpec("0", "float32", (5,), "input")),
        ("()", TensorSpec("0", "float32", (), "input")),
        ("torch.Size([2, 3])", TensorSpec("0", "float32", (2, 3), "input")),
        ("1 x 3 X 2×4*5", TensorSpec("0", "float32", (1, 3, 2, 4, 5), "input")),
        ("ids=(1, 128):int64", TensorSpec("ids", "int64", (1, 128), "input")),
        ("ids=1,128:int64", TensorSpec("ids", "int64", (1, 128), "input")),
    ],
)
def test_a_text_says_name_shape_and_type(text, expected):
    """The name and the type may be left out, a scalar has its word."""
    assert parse_inputs([text]) == (expected,)


def test_an_input_without_a_name_gets_its_place():
    """Places count all inputs, so that positions stay clear beside names."""
    assert [spec.name for spec in parse_inputs(["1x2", "mask=3", "4"])] == ["0", "mask", "2"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["1x3x"], "cannot read the input '1x3x'"),
        (["axb"], "cannot read the input 'axb'"),
        ([""], "cannot read the input ''"),
        (["1x-3"], "cannot read"),
        (["99999999999999999999x16"], "more than 18 digits"),
        (["x=1x2:"], "cannot read"),
        (["(1, 3"], "cannot read the input '(1, 3'"),
        (["(1, 3]"], "cannot read"),
        (["1,,3"], "cannot read"),
        (["(1, -3)"], "cannot read"),
        (["1x2:float33"], "unknown type 'float33' in the input '1x2:float33'"),
        (["a=1", "b=2", "a=3"], "the input 'a' is given twice"),
        (["1x2", "0=3"], "the input '0' is given twice"),
    ],
)
def test_a_text_that_says_nothing_is_refused(texts, message):
    """One line of what is wrong, one of what to write."""
    with pytest.raises(InputError) as caught:
        parse_inputs(texts)
    assert message in caught.value.message
    assert caught.value.hint


def test_places_become_positions_in_numeric_order():
    """The tenth input comes after the second; everything else is a keyword."""
    args, kwargs = to_args_and_kwargs({"10": "k", "mask": "m", "2": "c", "0": "a"})
    assert (args, kwargs) == (("a", "c", "k"), {"mask": "m"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("tensor", (("tensor",), {})),
        (("a", "b"), (("a", "b"), {})),
        (["a", "b"], (("a", "b"), {})),
        ({"x": "a"}, ((), {"x": "a"})),
        ((("a", "b"), {"mask": "m"}), (("a", "b"), {"mask": "m"})),
        (([], {"mask": "m"}), ((), {"mask": "m"})),
        (("a", {"x": "b"}), (("a", {"x": "b"}), {})),
        ((), ((), {})),
    ],
)
def test_callers_give_inputs_in_four_ways(given, expected):
    """A tensor, a tuple, a dict of keywords, or (args, kwargs): only a sequence and a mapping."""
    assert to_call_arguments(given) == expected


@pytest.mark.torch
class TestTensors:
    """What needs PyTorch."""

    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")

    @pytest.mark.parametrize(
        "dtype",
        [
            "float32",
            "float64",
            "float16",
            "bfloat16",
            "int64",
            "int8",
            "uint8",
            "bool",
            "complex64",
        ],
    )
    def test_every_type_can_be_made(self, dtype):
        """The tensor has the type and shape that were asked for; integers are zeros."""
        (made,), _ = make_model_arguments(None, parse_inputs([f"2x3:{dtype}"]))
        assert (str(made.dtype), tuple(made.shape)) == (f"torch.{dtype}", (2, 3))
        if not (made.is_floating_point() or made.is_complex()):
            assert made.sum() == 0

    def test_scalars_and_names_arrive(self):
        """A scalar has no axis, and a name makes a keyword."""
        (first,), kwargs = make_model_arguments(None, parse_inputs(["scalar", "mask=4:bool"]))
        assert first.shape == ()
        assert kwargs["mask"].dtype == self.torch.bool

    def test_making_inputs_is_repeatable_and_leaves_the_generator(self):
        """The same values every time, and the caller's random state as it was."""
        before = self.torch.get_rng_state()
        (first,), _ = make_model_arguments(None, parse_inputs(["8"]))
        (two,), _ = make_model_arguments(None, parse_inputs(["8"]))
        assert self.torch.equal(first, two)
        assert self.torch.equal(self.torch.get_rng_state(), before)

    @pytest.mark.parametrize("text", ["1000000x1000000x1000000", f"{10**17}x3"])
    def test_a_tensor_too_large_is_refused(self, text):
        """Nothing is allocated."""
        with pytest.raises(InputError, match="the input '0' would take"):
            make_model_arguments(None, parse_inputs([text]))

    def test_a_file_gives_positions_and_names(self, tmp_path):
        """Arrays without a name are positions, values are as they were saved."""
        file = tmp_path / "v.npz"
        np.savez(file, np.full((2, 3), 7.0, np.float32), np.arange(4), mask=np.ones(2, bool))
        args, kwargs = tensors_from_npz(str(file))
        assert [tuple(arg.shape) for arg in args] == [(2, 3), (4,)]
        assert args[0][1, 2] == 7
        assert args[1].dtype == self.torch.int64
        assert kwargs["mask"].tolist() == [True, True]

    @pytest.mark.parametrize(
        "write",
        [
            lambda path: None,
            lambda path: path.write_bytes(b""),
            lambda path: path.write_bytes(b"no file of numpy"),
            lambda path: path.write_bytes(b"PK\x03\x04 and then nothing"),
            lambda path: np.save(path.open("wb"), np.zeros(3)),
            lambda path: np.savez(path.open("wb"), x=np.array(["text"])),
            lambda path: np.savez(path.open("wb"), x=np.array([{}], dtype=object)),
        ],
        ids=["missing", "empty", "junk", "half a zip", "one array", "text", "pickled objects"],
    )
    def test_a_file_that_holds_no_tensors_is_refused(self, tmp_path, write):
        """Whatever is wrong with the file, it is one error; pickles in it are not run."""
        file = tmp_path / "v.npz"
        write(file)
        with pytest.raises(InputError) as caught:
            tensors_from_npz(str(file))
        assert str(file) in caught.value.message
        assert caught.value.hint == "write the file with numpy.savez(FILE, x=array)"
