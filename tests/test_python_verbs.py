"""The functions of Python that are verbs: what each answers, refuses and shows."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from tests.onnx_files import parsed, saved

SMALL = "g (float[2,4] x, float[4,3] w) => (float[2,3] y) { y = MatMul(x, w) }"  # 24 MACs
WIDE = "g (float[2,4] x, float[4,6] w) => (float[2,6] y) { y = MatMul(x, w) }"  # 48 MACs


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A product of 24 MACs; its folder is the current one."""
    monkeypatch.chdir(tmp_path)
    return Path(saved(tmp_path, parsed(SMALL)))


@pytest.fixture
def wide(small):
    """A product of 48 MACs beside it."""
    path = small.with_name("wide.onnx")
    path.write_bytes(parsed(WIDE).SerializeToString())
    return path


def printed_json(*words):
    """Return what the command prints with --json."""
    out = io.StringIO()
    with redirect_stdout(out):
        main([*words, "--json"])
    return json.loads(out.getvalue())


def results(small, wide):
    """Yield each function's result with the words of the command that asks the same."""
    Path("crossflops.toml").write_text(f'[budgets."{small.name}"]\nrules = ["macs <= 20"]\n')
    crossflops.count(small).save("report.json")
    a, b = small.name, wide.name
    yield (
        crossflops.table([a, b], by_tool=["exact-2k-1"]),
        ("table", a, b, "--by-tool", "exact-2k-1"),
    )
    yield crossflops.diff(a, b, max_increase="2%"), ("diff", a, b, "--max-increase", "2%")
    yield crossflops.check(), ("check",)
    yield crossflops.explain("norm.batch"), ("explain", "norm.batch")
    yield crossflops.explain("relu twice"), ("explain", "relu", "twice")
    yield crossflops.explain("thop"), ("explain", "thop")
    yield crossflops.devices("v100-pcie"), ("devices", "v100-pcie")
    yield crossflops.devices(search="h100"), ("devices", "--search", "h100")
    yield crossflops.devices(peak_tflops="fp16=7"), ("devices", "--peak-tflops", "fp16=7")
    yield crossflops.render("report.json"), ("render", "report.json")
    yield crossflops.identify("48 FLOPs", a), ("identify", "48 FLOPs", a)


def test_each_result_is_that_of_the_command(small, wide):
    """The same JSON; a page, a file and HTML show it."""
    for result, words in results(small, wide):
        plain = json.loads(json.dumps(result.to_dict()))
        assert plain == printed_json(*words), words
        page = result._repr_html_()
        assert page.startswith("<div"), words
        assert str(result).strip(), words
        saved_json = result.save("result.json").read_text()
        assert json.loads(saved_json) == plain


@pytest.mark.plots
def test_each_result_is_a_table_of_pandas(small, wide):
    """With as many rows as the CSV file of it, under the same heads."""
    pandas = pytest.importorskip("pandas")
    for result, words in results(small, wide):
        if words[0] == "render":  # a report has several tables
            continue
        frame = result.to_pandas()
        read = pandas.read_csv(result.save("result.csv"))
        assert (list(frame.columns), len(frame)) == (list(read.columns), len(read)), words
        assert len(frame), words


def test_a_table_names_objects_and_keys(small, wide):
    """Keys of a dict are names of rows, and the order is that of the caller."""
    seen = []
    table = crossflops.table({"b": wide, "a": small}, on_progress=seen.append)
    assert [(row.target, row.macs) for row in table.rows] == [("b", 48), ("a", 24)]
    assert seen == ["counting b", "counting a"]
    with pytest.raises(InputError, match="list of models"):
        crossflops.table(str(small))


def test_a_diff_takes_reports_files_and_models(small, wide):
    """48 - 24 MACs, from whatever the sides come."""
    report = crossflops.count(small)
    file = report.save("before.json")
    for first in (small, str(small), report, file):
        change = crossflops.diff(first, wide)
        assert (change.first_work.macs, change.second_work.macs) == (24, 48)
    assert crossflops.diff(report, wide, max_increase=1.0).holds
    assert not crossflops.diff(report, wide, max_increase="99%").holds
    with pytest.raises(InputError, match="batch has no effect here"):
        crossflops.diff(report, report, batch=2)


def test_a_check_says_what_holds(small):
    """24 MACs are above 20; the files for CI servers name the rule."""
    Path("crossflops.toml").write_text(f'[budgets."{small.name}"]\nrules = ["macs <= 20"]\n')
    result = crossflops.check(small.name)
    assert [(row.value, row.holds) for row in result.checks] == [(24, False)]
    assert "macs &lt;= 20" in result.to_junit()
    assert "macs" in result.to_code_quality()
    with pytest.raises(InputError, match="--if-budgeted has no effect"):
        crossflops.check(if_budgeted=True)


def test_devices_refuse_what_contradicts():
    """Two questions, and a name that no device has."""
    with pytest.raises(InputError, match="cannot be combined"):
        crossflops.devices("v100-pcie", search="v100")
    with pytest.raises(InputError, match="--precision has no effect"):
        crossflops.devices("v100-pcie", precision="fp16")
    with pytest.raises(UnknownNameError):
        crossflops.devices("no such device")


def test_a_saved_result_comes_back_as_it_was(small):
    """Of each kind with its own class; a question to what cannot answer it is refused."""
    report = crossflops.count(small)
    found = crossflops.identify("48 FLOPs", small)
    for result in (report, found):
        again = crossflops.render(result.save("saved.json"))
        assert again == result
        assert type(again) is type(result)
    with pytest.raises(InputError, match="module has no effect here"):
        crossflops.render("saved.json", module="layer1")
    with pytest.raises(InputError, match="not a comparison"):
        crossflops.render(report.save("saved.json"), consensus=True)
    Path("saved.json").write_text("[]")
    with pytest.raises(CrossflopsError, match="not a valid report"):
        crossflops.render("saved.json")


def test_an_export_names_its_files(small):
    """A copy that counts the same."""
    files = crossflops.export(small, to="onnx", file="copy.onnx")
    assert files.to_dict() == {"files": ["copy.onnx"], "agreement": None}
    assert crossflops.count(files[0]).macs == 24
