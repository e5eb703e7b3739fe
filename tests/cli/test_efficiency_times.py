"""`crossflops efficiency --times`: modules that are too fast, or that do not add up."""

import json

import pytest

from tests.onnx_files import saved, with_weights

# The published tree of BERT-Large on an A100, in part: a linear above the peak, and children that
# leave half of their parent's time unexplained.
PUBLISHED = """module,ms,macs
,76.39,3139.932356608G
bert,34.29,1500G
heads,3.23,46.97G
bert.linear,0.1311,85.8993459G
"""
PEAK = ("--pass-macs", "3139932356608", "--batch", "80", "--peak-tflops", "312")


@pytest.fixture
def times(line, tmp_path):
    """The verb on a table of times."""

    def run(text, *arguments):
        file = tmp_path / "times.csv"
        file.write_text(text, encoding="utf-8")
        return line("efficiency", *arguments, "--times", str(file))

    return run


def test_a_row_above_the_peak(times):
    """2 x 85.9 G in 0.131 ms are 1310 TFLOP/s on a part of 312: named, and status 1."""
    status, out, err = times(PUBLISHED, *PEAK)
    text = " ".join(out.split())
    assert status == 1
    assert "error: more than 100 % of a peak is impossible" in err
    assert "bert.linear at 1310 TFLOP/s is above the peak of 312" in text
    assert "(the model) took 76.39 ms, and its parts 37.52 ms" in text
    assert "take 38.87 ms less" in text


def test_in_json(times):
    """Every row with its rate and share."""
    status, out, _ = times(PUBLISHED, *PEAK, "--json")
    (efficiency,) = json.loads(out)["efficiency"]
    first = efficiency["modules"][0]
    assert status == 1
    assert first["rate"] == pytest.approx(2 * 3139932356608 / 0.07639)
    assert first["ratio"] == pytest.approx(first["rate"] / 312e12)
    assert (efficiency["rate"], efficiency["ratio"]) == (None, None)


def test_the_modules_of_a_model(times, tmp_path):
    """Their MACs are those of the count, for the batch that was timed."""
    text = """g (float[1,4] x, float[4,8] w) => (float[1,8] y) { y = MatMul(x, w) }"""
    path = saved(tmp_path, with_weights(text, "w"))
    status, out, err = times(
        "path,us\n,1\n", path, "--batch", "10", "--peak-tflops", "1", "--json"
    )
    (efficiency,) = json.loads(out)["efficiency"]
    assert (status, err) == (0, "")
    assert efficiency["modules"][0]["flops"] == 2 * 10 * 32
    assert efficiency["modules"][0]["rate"] == pytest.approx(640 / 1e-6)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("module\na\n", "needs a column of modules and a column of times"),
        ("module,ms\na,1\n", "line 2: the MACs of 'a' are unknown"),
        ("module,ms,macs\na,x,1\n", "line 2: a time must be positive, got 'x'"),
        ("module,ms,macs\na,1,1\nb,1\n", "line 3: 2 cells for 3 columns"),
    ],
)
def test_what_is_no_table_is_refused(times, text, what):
    """Two lines, and the line of the file."""
    status, out, err = times(text, *PEAK)
    assert (status, out) == (2, "")
    assert what in err
