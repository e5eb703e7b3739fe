"""`crossflops devices`, `peak` and `bandwidth`, as they are typed."""

import json

import pytest

from crossflops.verbs import devices as machine
from tests.verbs.test_devices import CPU, GPU, PEAK


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """No configuration of anybody's."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here(monkeypatch):
    """A machine with a GPU."""
    monkeypatch.setattr(machine, "read_cpu", lambda root: CPU)
    monkeypatch.setattr(machine, "find_gpus", lambda: ((GPU,), ("nothing of AMD",)))
    monkeypatch.setattr(machine, "load_or_measure_peak", lambda measure_anew=False: PEAK)


def test_a_name_of_several_is_no_error_where_they_agree(line):
    """All that bear the name A100 have one fp16 peak; those that bear V100 have several."""
    status, out, err = line("devices", "A100", "--precision", "fp16")
    assert (status, err) == (0, "")
    assert all(name in out for name in ("a100-pcie-40gb", "a100-sxm4-80gb"))
    assert line("devices", "V100", "--precision", "fp16")[0] == 2
    assert line("devices", "A100")[0] == 2


def test_one_device(line):
    """Names, peaks with their derivation, source and confidence."""
    status, out, err = line("devices", "Tesla V100-SXM2-16GB")
    assert (status, err) == (0, "")
    assert "1530 MHz x 80 x 512 x 2 = 125.3 T" in out
    assert "confidence: high" in out
    assert "NVIDIA V100 datasheet" in out


def test_one_device_as_json(line):
    """Figures in SI units."""
    status, out, _ = line("devices", "mi250x", "--json")
    data = json.loads(out)
    assert status == 0
    assert data["schema"] == "crossflops/1"
    assert data["device"]["peaks"]["bf16"] == 191.5e12
    assert {row["precision"]: row["package_peak"] for row in data["peaks"]}["bf16"] == 383e12


def test_an_ambiguous_name_lists_its_variants(line):
    """With a ratio for each, and ends with 2."""
    status, out, err = line("devices", "V100")
    assert status == 2
    assert [row.split()[0] for row in out.splitlines()[3:7]] == [
        "v100-pcie", "v100-sxm2", "v100-sxm3", "v100s-pcie",
    ]  # fmt: skip
    assert "86 %" in out
    assert err.startswith("error: 'V100' is the name of 4 devices")


@pytest.mark.parametrize("name", ["NVIDIA T400", "RTX A4000", "RTX 2080", "MI25", ""])
def test_an_unknown_name_is_refused(line, name):
    """With 2, and no neighbour is shown."""
    status, out, err = line("devices", name) if name else line("devices", " ")
    assert (status, out) == (2, "")
    assert [text.split(":")[0] for text in err.splitlines()] == ["error", "hint"]


def test_a_search_lists(line):
    """A part of a name is enough for that."""
    status, out, _ = line("devices", "--search", "rtx 30")
    assert status == 0
    assert "rtx-3090-ti" in out
    assert line("devices", "--search", "nothing so")[0] == 2


def test_all_devices(line, tmp_path):
    """As a table, and as CSV, one row for each."""
    status, out, _ = line("devices")
    assert status == 0
    assert "h100-sxm" in out
    assert line("devices", "-o", "all.csv")[0] == 0
    rows = (tmp_path / "all.csv").read_text().splitlines()
    assert len(rows) >= 138
    assert rows[0].startswith("id,name,aliases,vendor")


def test_own_devices(line, tmp_path):
    """From a file, and from the configuration; `efficiency` knows them, too."""
    text = "[devices.my-card]\npeaks = {fp16 = 100e12}\nbandwidth = 1e12\n"
    (tmp_path / "cards.toml").write_text(text)
    assert line("devices", "my-card")[0] == 2
    assert "100.0 TFLOP/s" in line("devices", "my-card", "--catalogue", "cards.toml")[1]
    (tmp_path / "crossflops.toml").write_text(text)
    assert line("devices", "my-card")[0] == 0
    question = ("--macs", "1T", "--examples-per-second", "25", "--precision", "fp16")
    status, out, _ = line("efficiency", *question, "--device", "my-card")
    assert status == 0
    assert "50.0 %" in out  # 2 x 1e12 x 25 of 100e12


def test_a_given_device(line):
    """Its ridge."""
    out = line("devices", "--peak-tflops", "bf16=312", "--bandwidth", "1555")[1]
    assert "201" in out


def test_this_machine(line, here):
    """What is found, and what could not be looked at."""
    status, out, _ = line("devices", "--here")
    assert status == 0
    for phrase in (
        "96 for this process",
        "epyc-9654",
        "h100-sxm",
        "bf16 989.4 TFLOP/s",
        "nothing of AMD",
        "7.373 T",
    ):
        assert phrase in out
    assert "Measured" not in out


def test_this_machine_measured(line, here):
    """The measured peak stands beside the rule, and takes no place of it."""
    status, out, _ = line("devices", "--measure")
    assert status == 0
    assert "Peak by the rule" in out
    assert "276.0 GFLOP/s" in out
    data = json.loads(line("devices", "--measure", "--json")[1])
    assert data["measured"]["peaks"] == {"fp32": 276e9}
    assert data["cpu"]["cores"] == 96


def test_a_count_against_the_measured_peak(line, here):
    """`--device measured`: 2 x 13.8 GMACs x 5 of 276 GFLOP/s."""
    question = ("--macs", "13.8G", "--examples-per-second", "5", "--precision", "fp32")
    status, out, _ = line("efficiency", *question, "--device", "measured")
    assert status == 0
    assert "50.0 %" in out
    assert "measured peak: a loop" in out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("v100-pcie", "--here"), "NAME and --here"),
        (("--search", "v100", "--peak-tflops", "1"), "--search and --peak-tflops"),
        (("--bandwidth", "1"), "--bandwidth requires --peak-tflops"),
        (("--peak-tflops", "fast"), "must be a positive"),
        (("x", "--catalogue", "none.toml"), "cannot read"),
    ],
)
def test_what_makes_no_sense_is_refused(line, arguments, what):
    """With 2, in two lines."""
    status, out, err = line("devices", *arguments)
    assert (status, out) == (2, "")
    assert what in err


def test_a_peak_and_a_bandwidth_are_derived(line):
    """The published products."""
    assert (
        "19.49 TFLOP/s" in line("peak", "--clock", "1.41GHz", "--units", "108", "--fma", "64")[1]
    )
    out = line("bandwidth", "--clock", "2000 MHz", "--bus", "32", "--channels", "2", "--json")[1]
    assert json.loads(out)["rate"] == 32e9
    assert "1.555 TB/s" in line("bandwidth", "--clock", "1215e6", "--bus", "5120")[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--clock", "fast", "--units", "1", "--fma", "1"),
        ("--clock", "1GHz", "--units", "0", "--fma", "1"),
        ("--clock", "1GHz", "--units", "nan", "--fma", "1"),
        ("--clock", "1GHz", "--units", "1"),
    ],
)
def test_a_peak_of_nonsense_is_refused(line, arguments):
    """With 2, in two lines."""
    status, out, err = line("peak", *arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 2
