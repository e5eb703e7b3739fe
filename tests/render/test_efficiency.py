"""The page of a required rate: one row, several devices, several numerators."""

import pytest

from crossflops.render.formats import FORMATS
from crossflops.render.terminal import terminal
from crossflops.report.efficiency import Efficiency, EfficiencyReport


def row(**changes):
    """ResNet-50's training in FP16 on the PCIe card, by the published 4.112 G."""
    fields = {
        "numerator": "given", "macs": 4_112_000_000, "multiplier": 3,
        "examples_per_second": 1325.0, "precision": "fp16", "work": 24_672_000_000,
        "rate": 32.6904e12, "device": "v100-pcie", "peak": 112e12, "ratio": 32.6904 / 112,
        "assumptions": ("2 FLOPs per MAC", "v100-pcie: a sheet"),
    }  # fmt: skip
    return Efficiency(**(fields | changes))


SXM2 = row(
    device="v100-sxm2", peak=125e12, ratio=32.6904 / 125,
    assumptions=("2 FLOPs per MAC", "v100-sxm2: another sheet"),
)  # fmt: skip


def lines(*rows, report=None, width=80):
    """The terminal's lines, blanks run together."""
    text = terminal(EfficiencyReport(efficiency=rows, report=report), width)
    assert max(map(len, text.splitlines())) <= width
    return [" ".join(line.split()) for line in text.splitlines()]


def test_one_row_is_a_derivation():
    """Model, rule, work, required rate, peak and share stand below each other."""
    assert lines(row()) == [
        "MACs as given · training · fp16 · 1 325 examples/s",
        "",
        "model 4 112 000 000 MACs given, for one example",
        "rule 2 FLOPs per MAC x 3",
        "work 24.67 GFLOPs for one example",
        "required 32.69 TFLOP/s at 1 325 examples/s",
        "peak 112.0 TFLOP/s v100-pcie, dense fp16",
        "MFU 29.2 % required / peak",
        "",
        "Assumed",
        "- 2 FLOPs per MAC",
        "- v100-pcie: a sheet",
    ]


def test_devices_stand_beside_each_other():
    """What differs is a table, what is common stands above it, assumptions are said once."""
    shown = lines(row(), SXM2)
    assert "required 32.69 TFLOP/s at 1 325 examples/s" in shown
    assert "device peak MFU" in shown
    assert "v100-pcie 112.0 TFLOP/s 29.2 %" in shown
    assert "v100-sxm2 125.0 TFLOP/s 26.2 %" in shown
    assert not any(line.startswith(("peak ", "MFU ")) for line in shown)
    assert shown.count("- 2 FLOPs per MAC") == 1
    assert "- v100-sxm2: another sheet" in shown


def test_numerators_stand_beside_each_other(resnet):
    """After a comparison: why the tools differ first, then the rate that each comes to."""
    native = row(
        numerator="native MACs", macs=4_089_184_256, work=24_535_105_536, rate=32.509e12,
        ratio=0.29026,
    )  # fmt: skip
    thop = row(
        numerator="thop", macs=4_133_742_592, work=24_802_455_552, rate=32.8633e12, ratio=0.29342
    )
    shown = lines(native, thop, report=resnet)
    assert "thop = native + 44 558 336" in shown
    start = shown.index("Required rate: training, fp16, 1 325 examples/s")
    assert start > shown.index("thop = native + 44 558 336")
    assert "peak 112.0 TFLOP/s v100-pcie, dense fp16" in shown[start:]
    assert "rule 2 FLOPs per MAC x 3" in shown[start:]
    assert "by MACs required MFU" in shown[start:]
    assert "native MACs 4 089 184 256 32.51 TFLOP/s 29.0 %" in shown[start:]
    assert "thop 4 133 742 592 32.86 TFLOP/s 29.3 %" in shown[start:]


def test_a_count_without_tools_is_no_comparison(count):
    """With a plain count the title names the model, and its operators are not listed."""
    shown = lines(row(numerator="native MACs"), report=count)
    assert shown[0] == "ResNet · training · fp16 · 1 325 examples/s"
    assert "Operators" not in shown


def test_without_a_peak_there_is_no_share():
    """A rate alone shows neither a peak nor a share, and no zero for them."""
    shown = lines(row(device=None, peak=None, ratio=None, precision="", multiplier=1))
    assert shown[0] == "MACs as given · inference · 1 325 examples/s"
    assert not any(line.startswith(("peak", "MFU")) for line in shown)
    assert "0.0 %" not in " ".join(shown)


def test_warnings_are_shown_once():
    """A warning that all rows share stands there once, before what was assumed."""
    shown = lines(row(warnings=("odd", "why")), row(device="x", warnings=("why",)))
    assert [line for line in shown if line.startswith("!")] == ["! odd", "! why"]
    assert shown.index("! why") < shown.index("Assumed")


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(1.33, "133.0 %"), (0.01, "1.0 %"), (0.00123, "0.12 %"), (1e-6, "0.0001 %"), (0.0, "0 %")],
)
def test_small_shares_are_not_zero(ratio, said):
    """A share keeps two digits however small it is; only zero is zero."""
    assert f"MFU {said} required / peak" in lines(row(ratio=ratio))


@pytest.mark.parametrize("value", [0.5, 303.1, 12345.0, 1234567.25])
def test_speeds_keep_their_digits(value):
    """The measured speed is shown as it was given."""
    spelled = {0.5: "0.5", 303.1: "303.1", 12345.0: "12 345", 1234567.25: "1 234 567.25"}
    assert f"at {spelled[value]} examples/s" in " ".join(lines(row(examples_per_second=value)))


@pytest.mark.parametrize("suffix", [".md", ".txt", ".json"])
def test_read_back_it_renders_to_the_same_bytes(suffix, resnet):
    """Through JSON and back, every format is the same."""
    noun = EfficiencyReport(efficiency=(row(), SXM2), report=resnet)
    again = EfficiencyReport.from_json(noun.to_json())
    assert FORMATS[suffix](again) == FORMATS[suffix](noun)


def test_json_holds_the_report_as_it_is_by_itself(resnet):
    """The report in the JSON has its derived values, as `compare --json` writes them."""
    import json

    plain = json.loads(FORMATS[".json"](EfficiencyReport(efficiency=(row(),), report=resnet)))
    assert list(plain) == ["schema", "efficiency", "report"]
    assert plain["schema"] == "crossflops/1"
    assert plain["report"] == json.loads(resnet.to_json())
    assert plain["efficiency"][0]["work"] == 24_672_000_000


def test_markdown_has_tables():
    """In Markdown the devices are a table."""
    text = FORMATS[".md"](EfficiencyReport(efficiency=(row(), SXM2)))
    assert "| v100-sxm2 | 125.0 TFLOP/s | 26.2 % |" in text
