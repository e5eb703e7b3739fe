"""`crossflops efficiency --roofline`: published verdicts from their inputs, formats, refusals."""

import csv
import json
from io import StringIO

import msgspec
import pytest

from crossflops.report.efficiency import EfficiencyReport
from tests.decoders import LLAMA_8B, Decoder, decoder
from tests.onnx_files import saved

RESNET = ("--macs", "4.112G", "--train", "--bytes-per-example")
SIZED = (
    "--params", "1G", "--layers", "2", "--hidden", "64", "--context", "8", "--precision", "bf16",
    "--device", "h100-sxm",
)  # fmt: skip
FP16 = (*RESNET, "459M", "--examples-per-second", "1325", "--precision", "fp16")
FP32 = (*RESNET, "918M", "--examples-per-second", "303.1", "--precision", "fp32")
H100 = ("--device", "NVIDIA H100 80GB HBM3", "--precision", "bf16")
DECODE = ("--batch", "8", "--latency-ms", "7.05", "--bytes", "weights-once", *H100)


@pytest.fixture
def efficiency(line):
    """The verb on one line: exit status, stdout with blanks run together, stderr."""

    def run(*arguments):
        status, out, err = line("efficiency", *arguments)
        return status, [" ".join(text.split()) for text in out.splitlines()], err

    return run


@pytest.fixture
def values(line):
    """The one roofline of an answer, as JSON has it."""

    def run(*arguments):
        status, out, err = line("efficiency", *arguments, "--json")
        assert status in (0, 1), err
        return json.loads(out)["efficiency"][0]

    return run


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """One step of Llama 3.1 8B: eight sequences, the 2048th token."""
    model = decoder(msgspec.structs.replace(LLAMA_8B, whole=True))
    return saved(tmp_path_factory.mktemp("llama"), model)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A decoder that is quick to count."""
    return saved(tmp_path_factory.mktemp("small"), decoder(Decoder()))


def test_training_on_an_ambiguous_device(efficiency):
    """FP16 is memory-bound on each V100: 53.75 FLOP/B, 48.4 TFLOP/s, 1961 images/s, 68 %."""
    status, out, err = efficiency(*FP16, "--device", "V100")
    assert status == 2
    assert "v100-pcie 53.75 124.4 48.38 TFLOP/s 1 961 67.6 % memory" in out
    assert "v100-sxm2 53.75 138.9 48.38 TFLOP/s 1 961 67.6 % memory" in out
    assert "error: 'V100' is the name of" in err


def test_the_same_training_in_fp32(efficiency):
    """FP32 is compute-bound: 27 FLOP/B is right of 15.6, and 53.4 % of the peak is the share."""
    status, out, _ = efficiency(*FP32, "--device", "v100-pcie")
    assert status == 0
    assert any(line.startswith("COMPUTE-BOUND: 26.88 FLOP/B is 1.73 x above") for line in out)
    assert any(line.startswith("of the roofline 53.4 % shortest / measured; MFU 53.4 %")
               for line in out)  # fmt: skip


def test_decoding_from_its_graph(efficiency, llama):
    """17.16 GB, 128.7 GFLOPs, 7.5 FLOP/B, 5.12 ms, 1562 a second, MBU 72.6 %; then the table."""
    what_if = ("batch=64", "weights=fp8", "weights=fp8,cache=fp8", "device=NVIDIA H200")
    status, out, err = efficiency(
        llama, *DECODE, *(x for option in what_if for x in ("--what-if", option))
    )
    assert (status, err) == (0, "")
    for phrase in (
        "work 128.7 GFLOPs a step of 8 examples",
        "bytes 17.16 GB weights 15.01 GB, cache 2.147 GB",
        "intensity 7.499 FLOP/B work / bytes",
        "attainable 25.12 TFLOP/s 2.5 % of the peak",
        "batch=64 9.609 ms 6 660 32.19 GB 31.98 295.3 memory",
        "weights=fp8 2.881 ms 2 776 9.652 GB 13.33 295.3 memory",
        "weights=fp8,cache=fp8 2.561 ms 3 124 8.579 GB 15 295.3 memory",
        "device=NVIDIA H200 3.574 ms 2 238 17.16 GB 7.499 206.1 memory",
        "MatMul (mlp) 96 70.1 65.7 65.7 8 memory",
        "MatMul (self_attn) 128 16.7 15.6 15.6 8 memory",
        "MatMul (lm_head) 1 6.5 6.1 6.1 8 memory",
        "Attention (self_attn) 32 6.7 12.5 12.5 4 memory <- cache",
    ):
        assert phrase in out, phrase
    text = " ".join(out)
    assert "MEMORY-BOUND: 7.499 FLOP/B is 39.4 x below the ridge. No batch" in text
    assert "intensity stays below 59.9" in text
    assert "shortest 5.122 ms 1 562 examples/s" in text
    assert "of the roofline 72.6 %" in text
    assert "MBU 72.6 % (2.434 TB/s), MFU 1.8 % (18.25 TFLOP/s)" in text


def test_a_decoder_by_its_sizes(values):
    """The closed form of the same step, without a graph."""
    sizes = (
        *("--params", "7504658432", "--layers", "32", "--hidden", "4096", "--heads", "32"),
        *("--head-dim", "128", "--kv-heads", "8", "--context", "2048"),
    )
    roofline = values(*sizes, "--batch", "8", "--roofline", "--what-if", "batch=64", *H100)[
        "roofline"
    ]
    step = roofline["step"]
    assert step["bytes"] == pytest.approx(17.16e9, rel=0.002)
    assert step["work"] == pytest.approx(128.7e9, rel=0.002)
    assert step["whole_seconds"] == pytest.approx(5.121e-3, rel=0.002)
    assert roofline["intensity_limit"] == pytest.approx(59.9, rel=0.002)
    assert roofline["what_if"][0]["whole_seconds"] == pytest.approx(9.61e-3, rel=0.002)


def test_a_processor_of_given_peaks(values):
    """276 GFLOP/s over 42.4 GB/s, ResNet-50 at batch 1: right of the ridge of 6.5."""
    given = ("--macs", "4087136256", "--bytes-per-example", "326M", "--roofline")
    utilization = values(
        *given, "--peak-tflops", "0.276", "--bandwidth", "42.4", "--latency-ms", "65.6"
    )
    step = utilization["roofline"]["step"]
    assert step["ridge"] == pytest.approx(6.5, rel=0.005)
    assert (step["bound"], step["attainable"]) == ("compute", 0.276e12)
    assert utilization["roofline"]["achieved"]["mfu"] == pytest.approx(0.45, abs=0.005)
    assert (utilization["bound"], utilization["ridge"]) == ("compute", step["ridge"])


def test_without_a_speed_there_is_the_bound_alone(efficiency, small):
    """A roofline needs no measurement."""
    status, out, _ = efficiency(small, "--roofline", *H100)
    assert status == 0
    assert not any(line.startswith(("measured", "required")) for line in out)
    assert any(line.startswith("shortest") for line in out)


def test_faster_than_the_bound_is_said(efficiency, small):
    """A run that moved less than the byte model says so: fused, or another device."""
    status, out, _ = efficiency(small, "--latency-ms", "0.00001", "--bytes", "unfused", *H100)
    assert status == 0
    assert "times as fast as its roofline" in " ".join(out)


def test_precisions_of_nodes(values, small):
    """Products at the FP8 peak, attention at the one of BF16."""
    roofline = values(small, "--roofline", *H100, "--precision-of", "*_proj*=fp8")["roofline"]
    used = {(node["precision"], node["peak"]) for node in roofline["nodes"] if node["work"]}
    assert used == {("fp8", 1978.9e12), ("bf16", 989.4e12)}


def test_single_precision_by_products_of_halves(values, small):
    """FP32 as three products of BF16 is kept in four bytes, and runs at a third of the peak."""
    asked = (small, "--bytes", "weights-once", "--device", "h100-sxm", "--precision")
    step = values(*asked, "bf16x3")["roofline"]["step"]
    single = values(*asked, "bf16")["roofline"]["step"]
    assert step["peak"] == pytest.approx(989.4e12 / 3)
    assert step["weights"] == 2 * single["weights"]


def test_the_rough_figure_is_that_of_the_ideal_kernel(values, small):
    """Without a roofline the bytes of a pass are those of fused-ideal, with the cache once."""
    ideal = values(small, "--bytes", "fused-ideal", *H100)["roofline"]["step"]
    assert values(small, *H100)["moved"]["bytes"] == ideal["bytes"]


def test_formats(line, small, tmp_path):
    """CSV has a row for each node, Markdown the nodes too, and JSON reads back to the same."""
    rows = tmp_path / "nodes.csv"
    assert line("efficiency", small, "--roofline", *H100, "-o", str(rows))[0] == 0
    read = list(csv.DictReader(StringIO(rows.read_text())))
    assert {"node", "op", "work", "bytes", "seconds", "bound"} <= read[0].keys()
    page = tmp_path / "page.md"
    assert line("efficiency", small, "--roofline", *H100, "-o", str(page))[0] == 0
    assert read[0]["node"] in page.read_text().replace("\\", "")
    report = tmp_path / "report.json"
    assert line("efficiency", small, "--roofline", *H100, "-o", str(report))[0] == 0
    text = report.read_text()
    assert EfficiencyReport.from_json(text).to_json() == text
    nodes = json.loads(text)["efficiency"][0]["roofline"]["nodes"]
    assert len(nodes) == len(read)
    assert sum(node["bytes"] for node in nodes) == sum(int(row["bytes"]) for row in read)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--macs", "1G", "--roofline"), "needs the peak FLOP/s and the memory bandwidth"),
        (("--macs", "1G", "--roofline", *H100), "needs bytes, which --macs does not give"),
        (("--macs", "1G", "--bytes-per-example", "x", *H100), "must be a number"),
        ((*FP16, "--device", "v100-pcie", "--bytes", "unfused"), "cannot be combined"),
        ((*FP16, "--device", "v100-pcie", "--what-if", "precision=fp8"), "fixes the bytes"),
        ((*SIZED, "--what-if", "bytes=unfused"), "fixes the bytes"),
        ((*SIZED, "--bytes", "unfused"), "requires a model"),
        ((*FP16, "--device", "v100-pcie", "--what-if", "nonsense"), "must be KEY=VALUE"),
        ((*FP16, "--device", "v100-pcie", "--tp", "2"), "shows one device"),
        ((*FP16, "--device", "v100-pcie", "--plot", "a.pdf"), "format"),
        ((*FP16, "--device", "v100-pcie", "--plot", "nowhere/a.svg"), "does not exist"),
        (("--macs", "1G", "--bytes-per-example", "1M", "--peak-tflops", "1", "--bandwidth", "1",
          "--bench", "absent.json"), "cannot read"),
    ],
)  # fmt: skip
def test_refused(line, arguments, said):
    """Two lines on stderr, and nothing on stdout."""
    status, out, err = line("efficiency", *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 2


def test_another_device_without_a_bandwidth_is_refused(line, small, tmp_path):
    """--bandwidth is that of the device that ran, so the remedy is the file of the other one."""
    file = tmp_path / "devices.toml"
    file.write_text("[devices.my-card]\npeaks = {bf16 = 112e12}\n")
    status, _, err = line(
        "efficiency", small, *H100, "--what-if", "device=my-card", "--catalogue", str(file)
    )
    assert status == 2
    assert err.startswith("error: the memory bandwidth of my-card is unknown\nhint: describe")
    assert "--bandwidth" not in err


def test_a_picture(line, small, tmp_path):
    """Beside the text, as the suffix says."""
    file = tmp_path / "roof.svg"
    status, out, err = line("efficiency", small, "--plot", str(file), *H100)
    assert (status, err) == (0, f"wrote {file}\n")
    assert "Roofline of h100-sxm" in out
    assert b"<svg" in file.read_bytes()


def test_more_than_a_bandwidth_ends_as_more_than_a_peak(efficiency):
    """2 GB of weights in 0.1 ms are 20 TB/s, of 3.35, and 2 GFLOPs 2 % of the peak."""
    status, _, err = efficiency(*SIZED, "--latency-ms", "0.1")
    assert status == 1
    assert err.startswith("error: more than 100 % of a bandwidth is impossible\nhint: ")
    assert efficiency(*SIZED, "--latency-ms", "1")[0] == 0  # 2 TB/s
