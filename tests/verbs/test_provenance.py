"""What a report says of its request: enough to ask again, and nothing of this machine."""

import getpass
import json
from pathlib import Path

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper

import crossflops
from crossflops import Report
from crossflops.facade import ShownBench, ShownEfficiency
from crossflops.render.formats import markdown
from crossflops.render.pages.bench import TOP, BenchView
from crossflops.render.terminal import terminal
from crossflops.verbs.provenance import _to_json_value, with_relative_paths


def product(path, columns):
    """A file with one MatMul, whose graph bears the name that every exporter gives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
              for n, s in (("x", [4, 16]), ("y", [4, columns]))]  # fmt: skip
    weight = helper.make_tensor("w", TensorProto.FLOAT, [16, columns], [0.0] * 16 * columns)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")
    graph = helper.make_graph([node], "main_graph", values[:1], values[1:], [weight])
    onnx.save(helper.make_model(graph), path)
    return path


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two files of one name in two folders, of which one is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return product(tmp_path / "here" / "a" / "model.onnx", 5), product(
        tmp_path / "there" / "model.onnx", 5
    )


def reports(target):
    """A report of every verb that makes one, as JSON."""
    speed = {"examples_per_second": 1.0, "peak_tflops": "1", "precision": "fp32"}
    yield Report, "count", crossflops.count(target, as_="exact-2k-1")
    yield Report, "compare", crossflops.compare(target, tools=(), timeout=9.0)
    yield ShownEfficiency, "efficiency", crossflops.efficiency(target, **speed)


def test_every_report_has_its_request_and_what_it_was_made_with(files):
    """The verb, the target as it was typed, the inputs as they can be typed, the flags."""
    for kind, verb, report in reports("a/model.onnx"):
        plain = json.loads(report.to_json())
        assert plain["request"] == {
            "verb": verb,
            "target": "a/model.onnx",
            "typed": True,
            "arguments": {},
            "inputs": ["x=4x16:float32"],
            "flags": plain["request"]["flags"],
        }
        assert plain["made_with"].keys() == {"crossflops"}
        assert kind.from_json(report.to_json()) == report
    flags = [report.request.flags for _, _, report in reports("a/model.onnx")]
    assert flags[0] == {"as": "exact-2k-1"}
    assert flags[1] == {"tools": [], "timeout": 9.0}
    assert flags[2] == {"examples_per_second": 1.0, "peak_tflops": ["1"], "precision": "fp32"}


def test_nothing_of_the_machine_is_in_it(files):
    """Neither the folder, nor the home, nor who asked; a copy elsewhere gives the same bytes."""
    own, copied = files
    for (_, _, report), (_, _, other) in zip(
        reports(str(copied)), reports(f"../there/{copied.name}"), strict=True
    ):
        assert report.to_json() == other.to_json()
        for hidden in (str(copied.parent), str(Path.home()), "there", getpass.getuser()):
            assert hidden not in json.dumps(json.loads(report.to_json())["request"])
    assert crossflops.count(str(own)).request.target == "a/model.onnx"
    assert crossflops.count(str(copied)).request.target == ".../model.onnx"


def test_reports_of_different_targets_have_different_titles(files):
    """Whatever the graphs are called, and also where the files are called alike."""
    own, copied = files
    other = product(copied.parent.parent / "third" / "model.onnx", 6)
    counted = [crossflops.count(str(file)) for file in (own, copied, other)]
    assert {report.model.name for report in counted} == {"main_graph"}
    titles = [markdown(report).splitlines()[0] for report in counted]
    assert len(set(titles)) == 3
    assert titles[0] == "# a/model.onnx"
    assert [terminal(report, 80).startswith(report.name) for report in counted] == [True] * 3


def test_objects_of_one_class_have_different_titles(files):
    """What was given has no name but its class: the digest of the graph tells them apart."""
    report = crossflops.count("a/model.onnx")
    first, other = (
        msgspec.structs.replace(
            report,
            request=msgspec.structs.replace(report.request, target="m.ResNet", typed=False),
            model=msgspec.structs.replace(report.model, name="ResNet", digest=digest),
        )
        for digest in ("0123456789abcdef", "fedcba9876543210")
    )
    assert (first.name, other.name) == ("ResNet 01234567", "ResNet fedcba98")
    assert terminal(first, 80).startswith("ResNet 01234567 · ")


def test_two_models_are_told_apart_in_one_report(files):
    """Both by their targets; the second has a request of its own."""
    own, _ = files
    product(own.parent / "other.onnx", 6)
    report = crossflops.compare("a/model.onnx", tools=(), against="a/other.onnx")
    assert report.against.request.target == "a/other.onnx"
    assert report.request.flags["against"] == "a/other.onnx"
    text = terminal(report, 200)
    assert text.startswith("a/model.onnx · ")
    assert " other.onnx = model.onnx + 64 MACs" in text  # 4 x 16 more


def test_a_report_of_an_older_release_reads_as_before(files):
    """Without a request the title is the name of the graph, and nothing is added."""
    report = crossflops.count("a/model.onnx")
    plain = json.loads(report.to_json())
    del plain["request"], plain["made_with"]
    old = Report.from_json(json.dumps(plain))
    assert old.name == "main_graph"
    assert {"request", "made_with"}.isdisjoint(json.loads(old.to_json()))
    rated = next(shown for kind, _, shown in reports("a/model.onnx") if kind is ShownEfficiency)
    bare = msgspec.structs.replace(rated, request=msgspec.UNSET, made_with=msgspec.UNSET)
    assert {"request", "made_with"}.isdisjoint(json.loads(bare.to_json()))
    fields = {field.name: field.required for field in msgspec.structs.fields(ShownBench)}
    assert fields["request"] is fields["made_with"] is False


def test_a_printed_report_is_its_table(files, monkeypatch):
    """`print(report)` is the page, as wide as the terminal; `repr` stays what it was."""
    monkeypatch.setenv("COLUMNS", "60")
    for _, _, report in reports("a/model.onnx"):
        assert f"{report}\n" == terminal(report, 60)
        assert repr(report).startswith(f"{type(report).__name__}(")


def test_a_printed_bench_is_its_table(files, monkeypatch):
    """As every other result."""
    model = crossflops.count("a/model.onnx").model
    bench = ShownBench(
        model=model, batch=4, macs=320, flops=640, macs_by_precision={"float32": 320},
        runtime="onnxruntime", device="cpu", threads=1, curve=(),
    )  # fmt: skip
    monkeypatch.setenv("COLUMNS", "70")
    assert f"{bench}\n" == terminal(BenchView(bench, TOP), 70)
    assert ShownBench.from_json(bench.to_json()) == bench


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("torchvision.models:resnet50", "torchvision.models:resnet50"),
        ("timm:vit_tiny", "timm:vit_tiny"),
        ("hf:org/name", "hf:org/name"),
        ("tests/zoo.py:unet", "tests/zoo.py:unet"),
        ("./a/model.onnx", "a/model.onnx"),
        ("a/../b.onnx", "b.onnx"),
        ("/x/y/model.py:make", ".../model.py:make"),
        ("hf:/x/y/folder", "hf:.../folder"),
        ("../up/model.onnx", ".../model.onnx"),
        ("~/secret/model.onnx", ".../model.onnx"),
        ("https://h/x", "https://h/x"),
        ("no path at all", "no path at all"),
    ],
)
def test_a_path_is_told_from_here_or_without_its_folders(tmp_path, monkeypatch, typed, told):
    """Whatever is a path; nothing else is touched."""
    monkeypatch.chdir(tmp_path)
    assert with_relative_paths(typed) == told


def test_values_of_python_are_told_as_json_has_them(tmp_path):
    """Objects by their class, without an address; paths without their folders."""
    values = {
        "a": [1, 2.5, None, True],
        "b": {"c": (tmp_path / "x.npz", "plain")},
        "d": object(),
        "e": Path,
    }
    plain = _to_json_value(values)
    assert plain == {
        "a": [1, 2.5, None, True],
        "b": {"c": [".../x.npz", "plain"]},
        "d": "builtins.object",
        "e": plain["e"],
    }
    assert plain["e"].endswith(".Path")
