"""`crossflops diff`: totals, what changed, moved, appeared and vanished, and a limit."""

import json

from tests.cli.test_table import ONE, TWO
from tests.onnx_files import saved, with_weights


def test_a_product_that_was_added_appears(line, tmp_path, monkeypatch):
    """TWO has 70 MACs, 140 FLOPs and 35 parameters more."""
    saved(tmp_path, with_weights(ONE, "w"), "one.onnx")
    saved(tmp_path, with_weights(TWO, "w", "v"), "two.onnx")
    monkeypatch.chdir(tmp_path)
    status, out, _ = line("diff", "one.onnx", "two.onnx", "--max-increase", "2%", "--json")
    data = json.loads(out)
    assert status == 1
    assert data["over"] == ["macs", "flops", "params"]
    assert data["second_work"] == {"macs": 100, "flops": 210, "params": 50}
    assert [node["second"]["macs"] for node in data["nodes"] if node["kind"] == "appeared"] == [70]
    assert sum(cause["macs"] for cause in data["causes"]) == 70


def test_what_was_deleted_saves(line, tmp_path, monkeypatch):
    """The other way nothing is over the limit; two saved reports say the same as two models."""
    saved(tmp_path, with_weights(ONE, "w"), "one.onnx")
    saved(tmp_path, with_weights(TWO, "w", "v"), "two.onnx")
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        assert line("count", f"{name}.onnx", "-o", f"{name}.json")[0] == 0
    for suffix in ("onnx", "json"):
        status, out, _ = line("diff", f"two.{suffix}", f"one.{suffix}", "--max-increase", "0%")
        assert status == 0
        assert "vanished" in out
        assert "-70" in out
        assert "Nothing grew by more than 0 %." in out


def test_what_is_the_same_under_another_name_moved(line, tmp_path, monkeypatch):
    """Nothing differs in the totals."""
    saved(tmp_path, with_weights(ONE, "w"), "one.onnx")
    model = with_weights(ONE, "w")
    model.graph.node[0].name = "other"
    saved(tmp_path, model, "moved.onnx")
    monkeypatch.chdir(tmp_path)
    status, out, _ = line("diff", "one.onnx", "moved.onnx", "--json")
    assert status == 0
    assert [(node["kind"], node["name"]) for node in json.loads(out)["nodes"]] == [
        ("moved", "other")
    ]


def test_a_node_that_the_exporter_numbers_anew_is_the_same(line, tmp_path, monkeypatch):
    """A product before the others takes their first number; each is known by its module."""
    for name, paths in (("one", ("b", "c")), ("two", ("a", "b", "c"))):
        inner = [f"h{k}" for k in range(len(paths) - 1)]
        values = ["x", *inner, "y"]
        body = "\n".join(f"{values[k + 1]} = MatMul({values[k]}, w)" for k in range(len(paths)))
        text = f"g (float[4,4] x, float[4,4] w) => (float[4,4] y) {{ {body} }}"
        model = with_weights(text, "w")
        for number, (node, path) in enumerate(zip(model.graph.node, paths, strict=True)):
            node.name = f"node_matmul_{number}"
            scopes = node.metadata_props.add()
            scopes.key = "pkg.torch.onnx.name_scopes"
            scopes.value = repr(["", path, "matmul"])
        saved(tmp_path, model, f"{name}.onnx")
    monkeypatch.chdir(tmp_path)
    _, out, _ = line("diff", "one.onnx", "two.onnx", "--json")
    nodes = json.loads(out)["nodes"]
    assert [(node["kind"], node["name"], node["second"]["macs"]) for node in nodes] == [
        ("appeared", "a/MatMul", 64)
    ]


def test_a_file_has_all_that_the_terminal_leaves_out(line, tmp_path, monkeypatch):
    """Twenty-five nodes became larger: twenty are shown on a terminal."""
    for name, wide in (("one", 2), ("two", 3)):
        body = "\n".join(f"y{k} = MatMul(x, w)" for k in range(25))
        outputs = ", ".join(f"float[{wide},4] y{k}" for k in range(25))
        text = f"g (float[{wide},4] x, float[4,4] w) => ({outputs}) {{ {body} }}"
        model = with_weights(text, "w")
        for number, node in enumerate(model.graph.node):
            node.name = f"product{number}"
        saved(tmp_path, model, f"{name}.onnx")
    monkeypatch.chdir(tmp_path)
    _, out, _ = line("diff", "one.onnx", "two.onnx")
    assert (out.count("product"), "and 5 rows more, listed in files" in out) == (20, True)
    line("diff", "one.onnx", "two.onnx", "-o", "diff.html")
    text = (tmp_path / "diff.html").read_text("utf-8")
    assert all(f"product{number}<" in text for number in range(25))


def test_a_file_that_is_no_report_is_refused(line, tmp_path, monkeypatch):
    """And a limit that is no share."""
    (tmp_path / "x.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    status, _, err = line("diff", "x.json", "x.json")
    assert status == 2
    assert "not a valid report" in err
    assert line("diff", "x.json", "x.json", "--max-increase", "much")[0] == 2


STRANGE = """g (float[2,3] x, float[3,5] w) => (float[2,5] y) {
    h = MatMul(x, w)  y = com.microsoft.NoSuchOperator(h)
}"""


def test_a_node_that_nobody_counted_is_named_and_never_within_a_limit(line, tmp_path, monkeypatch):
    """As models and as saved reports; where it was there before, it hides no growth."""
    monkeypatch.chdir(tmp_path)
    product = "g (float[2,3] x, float[3,5] w) => (float[2,5] y) { y = MatMul(x, w) }"
    saved(tmp_path, with_weights(product, "w"), "one.onnx")
    saved(tmp_path, with_weights(STRANGE, "w"), "strange.onnx")
    for name in ("one", "strange"):
        assert line("count", f"{name}.onnx", "-o", f"{name}.json")[0] == 0
    for suffix in ("onnx", "json"):
        pair = f"one.{suffix}", f"strange.{suffix}"
        status, out, _ = line("diff", *pair, "--max-increase", "2%", "--json")
        (row,) = json.loads(out)["new_uncounted"]
        assert (status, "NoSuchOperator" in row["op"]) == (1, True)
        status, out, _ = line("diff", *pair, "--max-increase", "2%")
        assert "NoSuchOperator" in out
        assert "Nothing grew" not in out
        assert line("diff", *pair)[0] == 0
        assert line("diff", *pair[::-1], "--max-increase", "2%")[0] == 0
        assert line("diff", pair[1], pair[1], "--max-increase", "2%")[0] == 0


def test_a_node_without_a_count_that_is_given_more_came_in(line, tmp_path, monkeypatch):
    """Nobody knows what it costs on other shapes; a report without shapes is read as before."""
    monkeypatch.chdir(tmp_path)
    wide = STRANGE.replace("float[3,5]", "float[3,50]").replace("float[2,5]", "float[2,50]")
    for name, text in (("narrow", STRANGE), ("wide", wide)):
        saved(tmp_path, with_weights(text, "w"), f"{name}.onnx")
        assert line("count", f"{name}.onnx", "-o", f"{name}.json")[0] == 0
    for suffix in ("onnx", "json"):
        pair = f"narrow.{suffix}", f"wide.{suffix}"
        status, out, _ = line("diff", *pair, "--max-increase", "9000%")
        assert status == 1
        assert "is unknown: 1 node without a count added" in " ".join(out.split())
    report = json.loads((tmp_path / "narrow.json").read_text())
    assert report["uncounted"][0].pop("inputs") == ["2x5"]
    (tmp_path / "old.json").write_text(json.dumps(report))
    status, out, _ = line("diff", "old.json", "narrow.json", "--max-increase", "2%")
    assert status == 0
    assert "Nothing that was counted grew" in out
