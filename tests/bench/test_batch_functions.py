"""The batch of a function as the inputs of an ONNX file, whose loop runs as its values say."""

import numpy as np
import pytest

from crossflops.cli import main
from crossflops.errors import InputError
from crossflops.targets.batch_arrays import arrays_of_inputs
from tests.onnx_files import parsed, saved

LOOP = (
    "g (float[n,4] x, int64 t) => (y) <bool go = {1}> { "
    "y = Loop (t, go, x) <body = b (int64 i, bool c, float[n,4] a) => (d, e) "
    "{ d = Identity (c) e = MatMul (a, a) }> }"
)
BATCHES = """
import numpy as np
class Tensor:
    def detach(self): return self
    def cpu(self): return np.ones((4, 4), np.float32)
def named(): return {"x": np.ones((4, 4), np.float32), "t": np.int64(3)}
def plain(): return Tensor(), np.int64(3)
def texts(): return {"x": object()}
"""


@pytest.fixture
def batches(tmp_path):
    """A file with functions that return batches."""
    path = tmp_path / "batches.py"
    path.write_text(BATCHES)
    return path


def test_a_batch_has_the_names_that_a_file_would_have(batches, tmp_path):
    """A dict has its own names, and a tuple numbers, as numpy.savez gives them."""
    np.savez(tmp_path / "in.npz", np.ones((4, 4), np.float32), np.int64(3))
    stored = arrays_of_inputs(str(tmp_path / "in.npz"))
    plain, named = (arrays_of_inputs(f"{batches}:{name}") for name in ("plain", "named"))
    assert list(plain) == list(stored) == ["0", "1"]
    assert list(named) == ["x", "t"]
    for values in (plain, named):
        for value, expected in zip(values.values(), stored.values(), strict=True):
            np.testing.assert_array_equal(value, expected)
            assert value.dtype == expected.dtype


def test_what_is_no_array_is_named(batches):
    """With the input, and what to return."""
    with pytest.raises(
        InputError, match="returns no array for the input x, but a object"
    ) as caught:
        arrays_of_inputs(f"{batches}:texts")
    assert "dict of arrays" in caught.value.hint


@pytest.mark.onnxruntime
@pytest.mark.parametrize("name", ["named", "plain"])
def test_the_values_of_a_batch_reach_the_run(name, batches, tmp_path, capsys):
    """Three runs of a product of 4 x 4 by 4 x 4, timed and observed."""
    pytest.importorskip("onnxruntime")
    words = [saved(tmp_path, parsed(LOOP)), "--inputs", f"{batches}:{name}"]
    assert main(["bench", *words, "--seconds", "0.01"]) == 0
    assert f"{3 * 4**3} MACs a run" in capsys.readouterr().out
    assert main(["count", *words, "--observe"]) == 0
    printed = capsys.readouterr().out
    assert f"{3 * 4**3} MACs" in printed
    assert "random" not in printed  # every input has a value
