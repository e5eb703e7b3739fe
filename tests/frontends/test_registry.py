"""A framework is one folder, one object and one line: nothing else knows that it is there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper

import crossflops
from crossflops.frontends import FRONTENDS, framework_title, frontend_named, frontend_of
from crossflops.frontends.onnx import OnnxFile

PACKAGE = Path(crossflops.__file__).parent
FRAMEWORKS = sorted(  # what reads files stays: the test counts one
    path.parent.name
    for path in (PACKAGE / "frontends").glob("*/__init__.py")
    if path.parent.name != "onnx"
)
ASKED = """
import sys
from crossflops.cli import main
import crossflops.frontends as frontends
kinds = {frontend.__class__.__module__.rpartition(".")[2] for frontend in frontends.FRONTENDS}
assert "FOLDER" not in kinds, kinds
assert not [name for name in sys.modules if name.startswith("crossflops.frontends.FOLDER")]
for arguments in (["--help"], ["tools"], ["bench", "--help"], ["count", "MODEL", "--json"]):
    assert main(arguments) == 0, arguments
assert main(["count", "json:loads", "--input", "1x4"]) == 2
"""


def product(folder: Path) -> str:
    """A file with one product."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "x"], ["y"])],
        "product",
        [value("x", onnx.TensorProto.FLOAT, [4, 4])],
        [value("y", onnx.TensorProto.FLOAT, [4, 4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "m")
    return str((folder / "m").rename(folder / "model.onnx"))


@pytest.mark.parametrize("folder", FRAMEWORKS)
def test_a_framework_goes_with_its_folder_and_its_line(folder, tmp_path):
    """Without both, files are counted, help is printed, and an unknown model is refused."""
    copy = tmp_path / "crossflops"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(copy / "frontends" / folder)
    registry = copy / "frontends" / "__init__.py"
    lines = registry.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line != f'    "{folder}",\n']
    assert len(lines) - len(kept) == 1
    registry.write_text("".join(kept))
    script = ASKED.replace("FOLDER", folder).replace("MODEL", product(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"macs": 64' in re.sub(r"\s+", " ", done.stdout)


def test_frameworks_are_told_apart_by_name_and_object():
    """Names are those of traces, titles those of messages; what is no model has no framework."""
    assert len(FRONTENDS) == len(FRAMEWORKS) + 1
    assert all(frontend_named(frontend.name) is frontend for frontend in FRONTENDS)
    assert all(framework_title(frontend.name) == frontend.title for frontend in FRONTENDS)
    assert (framework_title("sklearn"), framework_title("caffe")) == ("scikit-learn", "caffe")
    assert frontend_named("caffe") is None
    assert frontend_of(OnnxFile(path="model.onnx")) is frontend_named("onnx")
    assert frontend_of("a text") is None


def test_asking_about_a_framework_imports_none():
    """Attributes, targets and values are answered by what is there already."""
    script = (
        "import sys\n"
        "from crossflops.frontends import FRONTENDS, frontend_of, may_be_of_other_framework\n"
        "assert frontend_of(len) is None and frontend_of(object()) is None\n"
        "assert may_be_of_other_framework('keras.applications:ResNet50', {'torch'})\n"
        "assert not may_be_of_other_framework('torchvision.models:resnet50', {'torch'})\n"
        "assert [each.can_read('model.keras') for each in FRONTENDS].count(True) == 1\n"
        "packages = {name for each in FRONTENDS for name in each.packages} - {'onnxscript'}\n"
        "assert not packages & set(sys.modules), packages & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
