"""`crossflops efficiency`: what is printed, with which status, and what is refused."""

import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from crossflops.frontends.inputs import parse_inputs
from crossflops.hardware.rates import numerators
from crossflops.ir.profile import ConventionCount
from crossflops.ir.trace import Setting
from crossflops.targets.request import Request

FP16 = ("--macs", "4.112G", "--train", "--examples-per-second", "1325", "--precision", "fp16")
FP32 = ("--macs", "4.112G", "--train", "--examples-per-second", "303.1", "--precision", "fp32")
SPEED = ("--examples-per-second", "100")


@pytest.fixture(autouse=True)
def units(monkeypatch):
    """thop counts one per MAC, torch's counter two; causes need not be known."""
    units = {"thop": 1, "torch-flop-counter": 2}

    def find(tool, edition=None):
        return SimpleNamespace(unit=units[tool], formula=None)

    monkeypatch.setattr(numerators, "find_convention", find)


@pytest.fixture
def efficiency(line):
    """The verb on one line: exit status, stdout with blanks run together, stderr."""

    def run(*arguments):
        status, out, err = line("efficiency", *arguments)
        return status, [" ".join(text.split()) for text in out.splitlines()], err

    return run


@pytest.mark.parametrize(
    ("arguments", "device", "rate", "share"),
    [
        (FP16, "v100-pcie", "32.69 TFLOP/s", "29.2 %"),
        (FP16, "v100-sxm2", "32.69 TFLOP/s", "26.2 %"),
        (FP32, "v100-pcie", "7.478 TFLOP/s", "53.4 %"),
        (FP32, "v100-sxm2", "7.478 TFLOP/s", "47.6 %"),
        (FP16, "Tesla V100-PCIE-16GB", "32.69 TFLOP/s", "29.2 %"),
    ],
)
def test_resnet50_training_on_v100(efficiency, arguments, device, rate, share):
    """The published rates and shares of ResNet-50's training come out."""
    status, out, err = efficiency(*arguments, "--device", device)
    assert (status, err) == (0, "")
    assert any(line.startswith(f"required {rate}") for line in out)
    assert f"MFU {share} required / peak" in out


def test_a_device_with_variants_lists_them_and_ends_with_2(efficiency):
    """Plain V100: every variant with its peak and its share, and which names to use."""
    status, out, err = efficiency(*FP16, "--device", "V100")
    assert status == 2
    assert "v100-pcie 112.0 TFLOP/s 29.2 %" in out
    assert "v100-sxm2 125.0 TFLOP/s 26.2 %" in out
    assert "v100-sxm3 125.0 TFLOP/s 26.2 %" in out
    assert "v100s-pcie 130.0 TFLOP/s 25.1 %" in out
    assert err == (
        "error: 'V100' is the name of 4 devices with different peaks\n"
        "hint: write one of these names: v100-pcie | v100-sxm2 | v100-sxm3 | v100s-pcie\n"
    )


def test_a_device_whose_variants_agree_is_no_error(efficiency):
    """All four A100 have 312 TFLOP/s in fp16: 32.69 of these are 10.5 %, whichever it is."""
    status, out, err = efficiency(*FP16, "--device", "A100")
    assert (status, err) == (0, "")
    assert "peak 312.0 TFLOP/s A100, dense fp16" in out
    assert "MFU 10.5 % required / peak" in out
    assert "all of them give the same result" in " ".join(out)


def test_variants_that_agree_in_work_may_differ_in_bytes(line):
    """A roofline asks for the bandwidth too: 1555 GB/s or 2039 GB/s, so it has to be said."""
    moved = ("--bytes-per-example", "100M", "--roofline")
    status, _, err = line("efficiency", *FP16, "--device", "A100", *moved)
    assert status == 2
    assert err.startswith("error: 'A100' is the name of 4 devices")


def test_an_ambiguous_device_in_json(line):
    """With --json stdout is JSON alone, one efficiency for each variant."""
    status, out, err = line("efficiency", *FP16, "--device", "V100", "--json")
    assert (status, err.count("\n")) == (2, 2)
    plain = json.loads(out)
    assert plain["report"] is None
    assert [row["device"] for row in plain["efficiency"]] == [
        "v100-pcie", "v100-sxm2", "v100-sxm3", "v100s-pcie",
    ]  # fmt: skip


def test_an_unknown_device_is_refused_with_the_rate(efficiency):
    """No peak is made up; the rate that is required is said all the same."""
    status, out, err = efficiency(*FP16, "--device", "NVIDIA X123")
    assert (status, out) == (2, [])
    error, hint = err.splitlines()
    assert "the peak of device 'NVIDIA X123' is unknown" in error
    assert "the required rate is 32.69 TFLOP/s" in error
    assert "--peak-tflops" in hint


def test_a_precision_that_the_device_lacks_is_refused(efficiency):
    """BF16 on a V100 ends with 2, also where the device is ambiguous."""
    arguments = (*FP16[:-1], "bf16")
    status, out, err = efficiency(*arguments, "--device", "v100-pcie")
    assert (status, out) == (2, [])
    assert "v100-pcie has no bf16 peak" in err
    status, out, err = efficiency(*arguments, "--device", "V100")
    assert (status, out) == (2, [])
    assert "no matching device has a bf16 peak" in err


def test_a_variant_without_the_precision_is_named(efficiency):
    """Of an ambiguous device, those without such a peak are named instead of dropped."""
    status, out, err = efficiency(*FP16[:-1], "fp16_vector", "--device", "V100")
    assert status == 2
    assert any(line.startswith("v100-sxm2 31.40 TFLOP/s") for line in out)
    assert "v100s-pcie has no fp16_vector peak" in err


def test_a_peak_of_one_s_own(efficiency):
    """113.05 TFLOP/s, the PCIe card by its clock, makes it 28.9 %."""
    status, out, _ = efficiency(*FP16, "--peak-tflops", "113.05")
    assert status == 0
    assert "MFU 28.9 % required / peak" in out


def test_above_the_peak_a_check_does_not_hold(efficiency):
    """More than 100 % is shown with its likely reasons, and ends with 1."""
    status, out, _ = efficiency(*FP16, "--peak-tflops", "24.58")
    assert status == 1
    assert "MFU 133.0 % required / peak" in out
    assert any("133.0 % of the peak is impossible" in line for line in out)
    assert any("likely reasons" in line for line in out)


def test_without_a_device_the_rate_is_the_answer(efficiency):
    """Neither device nor peak: the required rate, and no share."""
    status, out, _ = efficiency("--macs", "4.112G", *SPEED)
    assert status == 0
    assert "required 822.4 GFLOP/s at 100 examples/s" in out
    assert not any(line.startswith("MFU") for line in out)


def test_a_model_is_counted(efficiency, answers, line, report):
    """The native MACs of a model are the numerator, and every option reaches the pipeline."""
    answers(report())
    status, out, _ = efficiency(
        "m:f", *SPEED, "--input", "1x2", "--input", "y=3:int64",
        "--arg", "weights=null", "--no-grad", "--peak-tflops", "1",
    )  # fmt: skip
    assert status == 0
    assert line.asked == Request(
        target="m:f",
        specs=parse_inputs(("1x2", "y=3:int64")),
        arguments={"weights": None},
        setting=Setting(grad=False),
    )
    assert "model 10 MACs native MACs, for one example" in out
    assert "required 2.000 kFLOP/s at 100 examples/s" in out


def test_by_the_convention_of_a_tool(efficiency, answers, line, report):
    """--as takes the tool's total as MACs; one that counts two per MAC is halved first."""
    for tool, unit in (("thop", 1), ("torch-flop-counter", 2)):
        total = 10 * unit
        answers(
            replace(
                report(), as_=ConventionCount(tool=tool, edition="1", total=total, assumed=False)
            )
        )
        status, out, _ = efficiency("m:f", *SPEED, "--as", tool)
        assert status == 0
        assert line.asked.as_ == tool
        assert f"model 10 MACs {tool}@1, for one example" in out


def test_compare_shows_why_and_then_each_rate(efficiency, answers, line, report):
    """--compare runs the tools, shows what explains them, then a rate by each one's number."""
    answers(report({"thop": 5}))
    status, out, _ = efficiency("m:f", *SPEED, "--compare", "--tool", "thop", "--peak-tflops", "1")
    assert status == 0
    assert line.comparison.tools == ("thop",)
    assert callable(line.tell)
    assert out.index("thop = native + 5") < out.index("by MACs required MFU")
    assert any(text.startswith("native MACs 10 ") for text in out)
    assert any(text.startswith("thop 15 ") for text in out)


def test_compare_in_json(line, answers, report):
    """The JSON holds an efficiency for each number, and the report with its residuals."""
    answers(report({"thop": 5}))
    status, out, err = line("efficiency", "m:f", *SPEED, "--compare", "--json")
    assert (status, err) == (0, "")
    plain = json.loads(out)
    assert [(row["numerator"], row["macs"]) for row in plain["efficiency"]] == [
        ("native MACs", 10), ("thop", 15),
    ]  # fmt: skip
    assert plain["report"]["reconciliations"][0]["residual"] == 5


def test_compare_when_every_tool_fails_ends_with_3(efficiency, answers, report):
    """The native rate is shown all the same."""
    answers(report({}, failures=("thop",)))
    status, out, err = efficiency("m:f", *SPEED, "--compare")
    assert status == 3
    assert "every tool failed" in err
    assert any("10 MACs" in line for line in out)


def test_compare_without_tools_is_no_failure(efficiency, answers, report):
    """With nothing installed the native rate stands alone, with a word on how to get tools."""
    answers(report({}))
    status, out, err = efficiency("m:f", *SPEED, "--compare")
    assert status == 0
    assert "crossflops doctor" in err
    assert any("10 MACs" in line for line in out)


def test_an_unknown_device_runs_no_tool(efficiency, answers, line, report):
    """--compare on an unknown device only counts, to say the rate that is required."""
    answers(report())
    status, _, err = efficiency("m:f", *SPEED, "--compare", "--device", "X", "--precision", "fp16")
    assert status == 2
    assert line.comparison is None
    assert "the required rate is" in err


def test_given_macs_beside_a_model(efficiency, answers, report):
    """With a model and --macs, the given number counts and the native one is named."""
    answers(report())
    status, out, _ = efficiency("m:f", "--macs", "11", *SPEED)
    assert status == 0
    assert "model 11 MACs given, for one example" in out
    assert any("Net has 10, counted natively (+10.00 % against these)" in line for line in out)


@pytest.mark.parametrize("suffix", ["json", "md", "txt"])
def test_it_goes_to_a_file(line, tmp_path, suffix):
    """-o writes the format of the suffix, and nothing to stdout."""
    file = tmp_path / f"rate.{suffix}"
    status, out, _ = line("efficiency", *FP16, "--device", "v100-pcie", "-o", str(file))
    assert (status, out) == (0, "")
    assert "v100-pcie" in file.read_text(encoding="utf-8")


def test_precision_is_read_in_any_case(efficiency):
    """FP16, as papers write it, is fp16."""
    status, out, _ = efficiency(*FP16[:-1], "FP16", "--device", "v100-pcie")
    assert status == 0
    assert "MFU 29.2 % required / peak" in out
