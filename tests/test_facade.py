"""What the public functions return: plain values that show themselves."""

import pickle

import msgspec
import pytest

import crossflops
from crossflops.facade import ShownEfficiency, ShownReport
from crossflops.render.html import html
from crossflops.report.report import Report
from tests.onnx_files import parsed, saved

GRAPH = "g (float[2,4] x, float[4,3] w) => (float[2,3] y) { y = MatMul(x, w) }"


@pytest.fixture
def file(tmp_path):
    """One product of 24 MACs."""
    return saved(tmp_path, parsed(GRAPH))


def test_a_report_is_the_same_value_wherever_it_has_been(file):
    """Through JSON, pickle, msgspec, and from the noun that the rooms below pass."""
    report = crossflops.count(file)
    assert type(report) is crossflops.Report is ShownReport
    plain = Report.from_json(report.to_json())
    assert type(plain) is Report
    for again in (
        crossflops.Report.from_json(report.to_json()),
        crossflops.Report.of(plain),
        pickle.loads(pickle.dumps(report)),
        msgspec.convert(msgspec.to_builtins(report), ShownReport),
        msgspec.structs.replace(report),
    ):
        assert again == report
        assert type(again) is ShownReport
        assert again.to_json() == plain.to_json()


def test_parts_of_a_result_show_themselves_too(file):
    """One module, a table, and the report within an efficiency."""
    report = crossflops.count(file)
    assert str(report).startswith(report.name)
    assert report._repr_html_() == html(report)
    assert report.view("op").cells("macs") == (24,)
    noun = crossflops.efficiency(file, examples_per_second=1.0, peak_tflops="1", precision="fp32")
    assert type(noun) is ShownEfficiency
    assert str(noun.report) == str(report)
    again = ShownEfficiency.from_json(noun.to_json())
    assert again == noun
    assert type(again.report) is ShownReport


def test_a_report_is_saved_by_its_suffix(tmp_path):
    """In every format that there is, and in no other."""
    import crossflops
    from crossflops.errors import UnknownNameError
    from tests.onnx_files import saved, with_weights

    text = "one (float[2,3] x, float[3,5] w) => (float[2,5] y) { y = MatMul(x, w) }"
    report = crossflops.count(saved(tmp_path, with_weights(text, "w")))
    for suffix in ("json", "md", "csv", "tex", "txt"):
        assert report.save(tmp_path / f"report.{suffix}").stat().st_size
    assert crossflops.Report.from_json((tmp_path / "report.json").read_text()).macs == 30
    with pytest.raises(UnknownNameError):
        report.save(tmp_path / "report.xyz")


@pytest.mark.plots
def test_a_table_of_pandas_has_whole_numbers(tmp_path):
    """Of the modules unless another table is asked for; a count above 2^53 stays exact."""
    pandas = pytest.importorskip("pandas")
    wide = 2**27 + 1
    text = f"g (float[1,{wide}] x, float[{wide},{wide}] w) => (float[1,{wide}] y)"
    text += " { y = MatMul(x, w) }"
    report = crossflops.count(saved(tmp_path, parsed(text)))
    assert report.macs == wide * wide
    nodes = report.to_pandas("node")
    assert isinstance(nodes, pandas.DataFrame)
    assert [int(macs) for macs in nodes["macs"]] == [wide * wide]
    assert list(report.to_pandas("op", top=1)["operator"]) == ["MatMul"]


def test_a_result_draws_the_picture_of_its_command(tmp_path):
    """A roofline as --plot draws it; a count has no tools that differ, and no file is written."""
    path = saved(tmp_path, parsed(GRAPH))
    rated = crossflops.efficiency(path, device="v100-pcie", precision="fp32", roofline=True)
    assert rated.plot(tmp_path / "roof.svg").read_text().startswith("<svg")
    with pytest.raises(crossflops.CrossflopsError):
        crossflops.count(path).plot(tmp_path / "tools.svg")
    assert not (tmp_path / "tools.svg").exists()
