"""What of TensorFlow's own words reaches stderr."""

import os
import subprocess
import sys

import pytest

from crossflops.normalize.tensorflow.messages import shortened

PACKAGE = "import os\nos.write(2, b'said by a library\\n')\n"
SCRIPT = """
from crossflops.normalize.tensorflow.quiet import quiet
try:
    with quiet():
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
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True
    )
    assert (found.stderr, found.stdout) == (shown, printed)


def test_a_count_says_nothing_beside_its_result():
    """A model of Keras, counted by the command: stderr is empty."""
    for name in ("tensorflow", "keras", "tf2onnx"):
        pytest.importorskip(name)
    command = [
        sys.executable,
        "-m",
        "crossflops",
        "count",
        "keras.layers:Dense",
        "--arg",
        "units=4",
    ]
    env = {one: value for one, value in os.environ.items() if one != "TF_CPP_MIN_LOG_LEVEL"}
    found = subprocess.run(
        [*command, "--input", "2x8"], env=env, capture_output=True, text=True, check=True
    )
    assert found.stderr == ""


def test_messages_of_keras():
    """The sentence in the middle, without colours and without what stands around it."""
    said = ValueError(
        "Exception encountered when calling Dot.call().\n\n\x1b[1mshapes 3 and 4\x1b[0m\n\n"
        "Arguments received by Dot.call():\n  inputs=..."
    )
    assert shortened(said) == "shapes 3 and 4"
