"""Rules about modules, operators, files and time, and where each says that its number grew."""

import json

import pytest

from tests.end_to_end.test_gates import model
from tests.onnx_files import saved, with_weights


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder, and what writes its model and its budget there.

    Layer `body` has 10 x 8 x 10 MACs and 80 weights, `body.head` 10 x 10 x 2 and 20, `more`,
    which lies in it, 10 x 2 x 1 and 2.
    """
    monkeypatch.chdir(tmp_path)

    def write(layers, budget=""):
        saved(tmp_path, model(layers))
        if budget:
            (tmp_path / "crossflops.toml").write_text(f'[budgets."model.onnx"]\n{budget}')

    return write


def rows_of(line, *words):
    """The rows of a check, by part and rule."""
    rows = json.loads(line("check", "--json", *words)[1])["checks"]
    return {(row["part"], row["rule"]): row for row in rows}


BUDGET = """
rules = ["macs <= +0%", "model_bytes <= +0%", "file_bytes <= +0%", "memory_traffic <= +0%"]
modules = {"body" = ["macs <= 1k", "bytes_read <= +0%"], "body.*" = ["params <= 20"]}

[budgets."model.onnx".operators]
MatMul = ["macs <= +1%", "nodes <= 2"]
Softmax = ["nodes == 0"]
"""


def test_every_rule_says_what_grew_in_its_own_unit(line, project):
    """`more` reads 10 x 2 and 2 x 1 values and writes 10: 88 and 40 bytes."""
    project(("body", "head"), BUDGET)
    assert line("check", "--update")[0] == 0
    project(("body", "head", "more"))
    rows = rows_of(line)
    assert {key: (row["value"], row["holds"], row["line"]) for key, row in rows.items()
            if key[1] != "file_bytes <= +0%"} == {
        ("", "macs <= +0%"): (1020, False, 3),
        ("", "model_bytes <= +0%"): (408, False, 3),
        ("", "memory_traffic <= +0%"): (1728, False, 3),
        ("module body", "macs <= 1k"): (1020, False, 4),
        ("module body", "bytes_read <= +0%"): (1208, False, 4),
        ("module body.head", "params <= 20"): (22, False, 4),
        ("operator MatMul", "macs <= +1%"): (1020, False, 7),
        ("operator MatMul", "nodes <= 2"): (3, False, 7),
        ("operator Softmax", "nodes == 0"): (0, True, 8),
    }  # fmt: skip
    grew = {key: (row["grew_in"], [(part["path"], part["by"]) for part in row["grew"]])
            for key, row in rows.items()}  # fmt: skip
    more = "body.head.more"
    assert grew["", "macs <= +0%"] == ("macs", [(more, 20)])
    assert grew["", "model_bytes <= +0%"] == ("model_bytes", [(more, 8)])
    assert grew["", "file_bytes <= +0%"] == ("model_bytes", [(more, 8)])
    assert grew["", "memory_traffic <= +0%"] == ("memory_traffic", [(more, 128)])
    assert grew["module body", "bytes_read <= +0%"] == ("bytes_read", [(more, 88)])
    assert grew["module body.head", "params <= 20"] == ("params", [(more, 2)])
    assert grew["operator MatMul", "nodes <= 2"] == ("nodes", [("MatMul", 1)])


def test_a_file_has_the_bytes_of_its_external_data(line, project, tmp_path):
    """100 floats lie beside it; another budget of one file stands by itself."""
    import onnx

    project(("body", "head"), 'rules = ["file_bytes <= +0%"]\n')
    onnx.save(model(("body", "head")), tmp_path / "model.onnx", save_as_external_data=True,
              location="weights.bin", size_threshold=0)  # fmt: skip
    parts = [(tmp_path / name).stat().st_size for name in ("model.onnx", "weights.bin")]
    assert parts[1] >= 400
    assert rows_of(line, "--update")["", "file_bytes <= +0%"]["value"] == sum(parts)
    (tmp_path / "weights.bin").unlink()
    assert "weights.bin" in rows_of(line)["", "file_bytes <= +0%"]["error"]


WIDE = """g (float[4,4] x, float[4,4] a) => (float[4,4] y) {
    h = MatMul(x, a)  y = Relu(h)
}"""
WIDER = """g (float[4,4] x, float[4,4] a) => (float[4,4] y) {
    h = MatMul(x, a)  w = Concat <axis = 0> (h, h)  s = Sigmoid(w)
    p, q = Split <axis = 0> (s)  y = Add(p, q)
}"""


def test_the_peak_grew_at_a_node(line, project, tmp_path):
    """From x and h of 64 bytes each to two of 128 bytes each, which h twice is made into."""
    project(("body",), 'rules = ["peak_activation_memory <= +0%"]\n')
    saved(tmp_path, with_weights(WIDE, "a"))
    assert line("check", "--update")[0] == 0
    saved(tmp_path, with_weights(WIDER, "a"))
    (row,) = rows_of(line).values()
    assert not row["holds"]
    assert row["grew_in"] == "peak_activation_memory"
    assert sum(part["by"] for part in row["grew"]) == row["change"] > 0


def test_uncounted_work_fails_its_module_and_its_operator(line, project, tmp_path):
    """Where the module has the node, and where the operator is its own; others hold."""
    project(
        ("body",),
        """
        rules = ["uncounted <= 0"]
        modules = {"body.*" = ["macs <= 1k"], "tail" = ["macs <= 1k"]}
        operators = {Relu = ["flops <= 1k"], "com.acme.*" = ["macs <= 1k"]}
    """,
    )
    made = model(("body",))
    made.graph.node[0].op_type, made.graph.node[0].domain = "Big", "com.acme"
    made.graph.node[0].name = "/body/big/Big"
    made.opset_import.add(domain="com.acme", version=1)
    made.graph.value_info.append(made.graph.output[0])  # what the strange node gives
    made.graph.node.add(op_type="Relu", name="/tail/Relu", input=["y"], output=["z"])
    made.graph.output[0].name = "z"
    saved(tmp_path, made)
    rows = rows_of(line)
    assert not rows["module body.big", "macs <= 1k"]["holds"]
    assert rows["module tail", "macs <= 1k"]["holds"]
    assert rows["operator Relu", "flops <= 1k"]["holds"]
    assert not rows["operator com.acme.Big", "macs <= 1k"]["holds"]
    assert rows["", "uncounted <= 0"]["value"] == 1


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ('modules = {hed = ["macs <= 1"]}', "no module of the model matches 'hed'"),
        ('operators = {MatMull = ["macs <= 1"]}', "did you mean MatMul?"),
        ('modules = {body = ["nodes <= 1"]}', "which is unknown for module budgets"),
        ('operators = {MatMul = ["params <= 1"]}', "which is unknown for operator budgets"),
        ('operators = {MatMul = ["thop <= 1"]}', "which is unknown for operator budgets"),
        ('operators = {MatMul = []}', "empty list"),
        ("modules = {}", "must be a table of rules"),
        ('modules = ["body"]', "must be a table of rules"),
        ('modules = {body = "macs <= 1"}', "must have a list of rules"),
    ],
)  # fmt: skip
def test_a_part_that_is_not_there_is_never_green(line, project, budget, words):
    """A misspelled module, or a number that such a part has not."""
    project(("body", "head"), budget)
    status, out, err = line("check")
    assert status == 2
    assert words in " ".join((out + err).split())


def test_a_pattern_of_files_is_a_budget_for_each(line, project, tmp_path):
    """One with a budget of its own is not taken by it; a pattern without a file is an error."""
    (tmp_path / "nets").mkdir()
    for name in ("a.onnx", "b.onnx", "own.onnx"):
        saved(tmp_path / "nets", model(("body",)), name)
    (tmp_path / "crossflops.toml").write_text(
        '[budgets."nets/*.onnx"]\nrules = ["macs <= 900"]\n'
        '[budgets."nets/own.onnx"]\nrules = ["macs <= 1"]\n'
        '[budgets."none/*.onnx"]\nrules = ["macs <= 1"]\n'
    )
    status, out, _ = line("check", "--json")
    rows = [(row["target"], row["holds"]) for row in json.loads(out)["checks"]]
    assert rows == [
        ("nets/a.onnx", True), ("nets/b.onnx", True), ("nets/own.onnx", False),
        ("none/*.onnx", False),
    ]  # fmt: skip
    assert status == 1
    assert line("check", "nets/a.onnx")[0] == 0


@pytest.mark.onnxruntime
def test_a_model_has_a_latency(line, project):
    """Far below ten seconds, and above zero; a smaller limit fails."""
    project(("body",), 'rules = ["latency_ms <= 10k", "latency_ms <= 0.000001"]\n')
    fast, slow = rows_of(line).values()
    assert fast["holds"]
    assert 0 < fast["value"] < 10_000
    assert not slow["holds"]
