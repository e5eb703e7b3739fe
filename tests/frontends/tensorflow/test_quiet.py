"""What of TensorFlow's own words reaches stderr."""

import os
import subprocess
import sys

import pytest

from crossflops.frontends.tensorflow.load.messages import short_error_text
from tests.onnx_files import parsed, saved

PACKAGE = "import os\nos.write(2, b'said by a library\\n')\n"
SCRIPT = """
from crossflops.frontends.tensorflow.load.quiet import quieting_tensorflow
try:
    with quieting_tensorflow():
        import tensorflow
except RuntimeError:
    print("failed")
"""


@pytest.mark.parametrize(
    ("then", "level", "shown", "printed"),
    [
        ("", None, "", ""),
        ("raise RuntimeError", None, "said by a library\n", "failed\n"),
        ("", "0", "said by a library\n", ""),
    ],
    ids=["silent", "it-fails", "asked-for"],
)
def test_an_import(then, level, shown, printed, tmp_path):
    """Nothing while all is well; all of it where the import fails, or somebody wants to see it."""
    (tmp_path / "tensorflow.py").write_text(PACKAGE + then)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    env.pop("TF_CPP_MIN_LOG_LEVEL", None)
    if level is not None:
        env["TF_CPP_MIN_LOG_LEVEL"] = level
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    assert (process.stderr, process.stdout) == (shown, printed)


@pytest.mark.tensorflow
@pytest.mark.parametrize("verb", ["count-keras", "compare-file"])
def test_a_command_says_nothing_beside_its_result(verb, tmp_path):
    """A model of Keras, or a file that is rebuilt for the profiler: only progress is on stderr."""
    for name in ("tensorflow", "keras", "tf2onnx", "crossflops_tensorflow"):
        pytest.importorskip(name)
    if verb == "count-keras":
        line = ["count", "keras.layers:Dense", "--arg", "units=4", "--input", "2x8"]
    else:
        path = saved(tmp_path, parsed("f (float[2, 8] x) => (float[2, 8] y) { y = Relu(x) }"))
        line = ["compare", str(path), "--tool", "tensorflow"]
    command = [sys.executable, "-m", "crossflops", *line]
    env = {
        variable: value
        for variable, value in os.environ.items()
        if variable != "TF_CPP_MIN_LOG_LEVEL"
    }
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert process.stderr == ""


def test_messages_of_keras():
    """The sentence in the middle, without colours and without what stands around it."""
    error = ValueError(
        "Exception encountered when calling Dot.call().\n\n\x1b[1mshapes 3 and 4\x1b[0m\n\n"
        "Arguments received by Dot.call():\n  inputs=..."
    )
    assert short_error_text(error) == "shapes 3 and 4"
