"""Node data for model-explorer."""

import json

import pytest

from crossflops.errors import InputError
from crossflops.verbs.api import export
from tests.onnx_files import parsed, saved

TEXT = """g (float[1,5] x, float[5,4] w) => (float[1,4] z, float[1,4] o) {
    z = Relu(y)
    [product] y = MatMul(x, w)
    o = local.Odd(z) }"""


@pytest.mark.parametrize(("unit", "values"), [("macs", (0, 20)), ("flops", (4, 40))])
def test_every_node_has_its_value_under_its_id(tmp_path, unit, values):
    """Its name, else its place in the file as it stands; what is not counted has none."""
    file = tmp_path / "data.json"
    source = saved(tmp_path, parsed(TEXT))
    assert export(source, to="model-explorer", file=file, unit=unit) == [file]
    data = json.loads(file.read_text())
    assert data["results"] == {"<node_0>": {"value": values[0]}, "product": {"value": values[1]}}
    stops = [stop["stop"] for stop in data["gradient"]]
    assert (stops[0], stops[-1]) == (0, 1)
    assert set(data) <= {"results", "thresholds", "gradient"}


def test_what_does_not_go_together_is_refused(tmp_path):
    """Before anything is read."""
    for options in (
        {"to": "model-explorer", "file": "x.onnx"},
        {"to": "onnx", "file": "x.json"},
        {"to": "model-explorer", "file": "x.json", "annotate": True},
        {"to": "dot", "file": "x.dot"},
    ):
        with pytest.raises(InputError):
            export("no such file.onnx", **options)
