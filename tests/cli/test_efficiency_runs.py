"""`crossflops efficiency --runs`: a table of measured runs goes in, rates and shares come out."""

import csv
import io
import json

import pytest

HEAD = "device,precision,batch,rate\n"
RESNET = HEAD + "Tesla V100-PCIE-16GB,fp16,256,1325\nv100-pcie,fp32,128,303.1\n"
GIVEN = ("--macs", "4.112G", "--train")


@pytest.fixture
def runs(line, tmp_path):
    """The verb on a table: exit status, stdout and stderr."""

    def run(text, *arguments):
        file = tmp_path / "runs.csv"
        file.write_text(text, encoding="utf-8")
        return line("efficiency", *arguments, "--runs", str(file))

    return run


def test_resnet50_training(runs):
    """Two published rows come out with their rates and shares, and the lines that they are on."""
    status, out, err = runs(RESNET, *GIVEN, "--json")
    assert (status, err) == (0, "")
    first, second = json.loads(out)["efficiency"]
    assert (first["line"], first["batch"], second["line"], second["batch"]) == (2, 256, 3, 128)
    assert first["rate"] == pytest.approx(32.69e12, rel=1e-3)
    assert first["ratio"] == pytest.approx(0.2919, rel=1e-3)
    assert second["rate"] == pytest.approx(7.478e12, rel=1e-3)
    assert second["ratio"] == pytest.approx(0.5341, rel=1e-3)


def test_as_a_table_of_text(runs):
    """Every row shows what ran, how fast, and its share."""
    status, out, _ = runs(RESNET, *GIVEN)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 0
    assert any(
        "v100-pcie fp16 256 1 325 32.69 TFLOP/s 112.0 TFLOP/s 29.2 %" in line for line in lines
    )
    assert any(
        "v100-pcie fp32 128 303.1 7.478 TFLOP/s 14.00 TFLOP/s 53.4 %" in line for line in lines
    )


def test_as_csv(runs, tmp_path):
    """A table that a program reads: a line for each run."""
    file = tmp_path / "out.csv"
    assert runs(RESNET, *GIVEN, "-o", str(file))[0] == 0
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    assert [(row["precision"], row["batch"]) for row in rows] == [("fp16", "256"), ("fp32", "128")]
    assert [f"{float(row['ratio']):.3f}" for row in rows] == ["0.292", "0.534"]


def test_a_model_is_counted_once(runs, line, answers, report, monkeypatch):
    """Rows differ in what was measured: the count is the same, whatever their number."""
    from crossflops.verbs import count as native

    answers(report())
    counts, count = [], native.native_count

    def counting(*arguments, **options):
        counts.append(1)
        return count(*arguments, **options)

    monkeypatch.setattr(native, "native_count", counting)
    status, out, _ = runs("rate,peak-tflops\n100,1\n200,1\n300,1\n", "m:f", "--json")
    assert status == 0
    assert [efficiency["rate"] for efficiency in json.loads(out)["efficiency"]] == [
        2000,
        4000,
        6000,
    ]
    assert len(counts) == 1


def test_the_command_fills_what_rows_leave_out(runs):
    """An empty cell, and a column that is not there, are as the command says."""
    text = "Images/s, dtype\n1325,\n303.1,FP32\n"
    status, out, _ = runs(text, *GIVEN, "--device", "v100-pcie", "--precision", "fp16", "--json")
    assert status == 0
    efficiencies = json.loads(out)["efficiency"]
    assert [efficiency["precision"] for efficiency in efficiencies] == ["fp16", "fp32"]
    assert [f"{efficiency['ratio']:.3f}" for efficiency in efficiencies] == ["0.292", "0.534"]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("X123,fp16,1,5", "is unknown"),
        ("v100-pcie,bf16,1,5", "v100-pcie has no bf16 peak"),
        ("V100,fp16,1,5", "is the name of 4 devices"),
        ("v100-pcie,fp16,some,5", "batch must be a whole number of at least 1, got 'some'"),
        ("v100-pcie,fp16,2.5,5", "batch must be a whole number of at least 1, got '2.5'"),
        ("v100-pcie,fp16,1,-5", "examples per second must be a positive number, got '-5'"),
        ("v100-pcie,fp16,1,nan", "examples per second must be a positive number, got 'nan'"),
        ("v100-pcie,fp16,1", "3 cells, but the table has 4 columns"),
        ("v100-pcie,fp16,1,", "no measured speed is given"),
        ("v100-pcie,,1,5", "needs a precision"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(runs, row, what):
    """The other rows are answered; the command ends with 2."""
    status, out, err = runs(f"{RESNET}{row}\n", *GIVEN)
    assert status == 2
    assert "29.2 %" in out
    (message,) = [line for line in err.splitlines() if "line 4" in line]
    assert what in message
    assert "1 of 3 rows" in err


def test_every_variant_of_an_ambiguous_device(runs):
    """A row that may mean several devices shows each of them."""
    status, out, _ = runs(HEAD + "V100,fp16,256,1325\n", *GIVEN)
    assert status == 2
    assert all(text in out for text in ("v100-pcie", "v100-sxm2", "v100s-pcie", "26.2 %"))


def test_above_the_peak_a_check_does_not_hold(runs):
    """One row with more than its peak is enough for 1."""
    status, out, _ = runs(RESNET + "v100-pcie,fp32,128,1325\n", *GIVEN)
    assert status == 1
    assert "is impossible" in out


def test_columns_that_nobody_knows_are_named(runs):
    """They are kept out, and that is said."""
    status, _, err = runs("rate,driver\n1,470\n", *GIVEN)
    assert status == 0
    assert "unused columns: driver" in err


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "has no rows"),
        (HEAD, "has no rows"),
        ("device,batch\nv100-pcie,1\n", "no column with a speed"),
        ("rate,images/s\n1,2\n", "more than one column for examples_per_second"),
        ('rate\n"1\n', "not a valid CSV file"),
    ],
)
def test_what_is_no_table_is_refused(runs, text, what):
    """Two lines, and nothing on stdout."""
    status, out, err = runs(text, *GIVEN)
    assert (status, out) == (2, "")
    assert what in err
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "hint"]


def test_a_table_that_is_not_there_is_refused(line, tmp_path):
    """As any other file."""
    status, out, err = line("efficiency", *GIVEN, "--runs", str(tmp_path / "none.csv"))
    assert (status, out) == (2, "")
    assert "cannot read" in err
