"""Generated text against a device, by hand: prefill, decoding and both, on one device and more."""

import json

import msgspec
import pytest

import crossflops
from crossflops.cli import main
from crossflops.hardware.devices.peaks import Peaks
from crossflops.hardware.rates.generation import GenerationRun, phase_efficiencies
from tests.onnx_files import saved, with_weights
from tests.workloads import drafted_workload, round_workload, write_workload_report

MODEL = "g (float[2,4] x, float[4,3] w) => (float[2,3] y) { y = MatMul(x, w) }"
# 100 MFLOP/s and 1 MB/s: a ridge of 100 FLOPs per byte
PEAKS = Peaks(given={"fp32": 100e6, "bf16": 200e6}, bandwidth=1e6)


@pytest.fixture
def workload_file(tmp_path, monkeypatch, capsys):
    """A saved count with the round workload."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, with_weights(MODEL, "w"), "model.onnx")
    assert main(["count", "model.onnx", "-o", "count.json"]) == 0
    capsys.readouterr()
    path = tmp_path / "workload.json"
    write_workload_report(path, (tmp_path / "count.json").read_bytes())
    return path


def rated(devices=1, precision="fp32", cache="fp32", model="weights-once", against=PEAKS, **times):
    """The rows of the round workload."""
    run = GenerationRun(
        devices=devices, precision=precision, cache=cache, byte_model=model, seconds=times
    )
    return phase_efficiencies(round_workload(), run, against)


def test_both_phases_on_one_device():
    """Prefill is bound by compute, decoding by memory, and a request is one after the other."""
    prefill, decode, request = rated(prefill=0.2, decode=2.0)
    # 2 x 8 M FLOPs at 100 M/s; 80 000 bytes of weights and 4 000 of the cache at 1 M/s
    assert (prefill.device_flops, prefill.device_bytes) == (16_000_000, 84_000)
    assert (prefill.bound, prefill.bound_seconds) == ("compute", pytest.approx(0.16))
    assert prefill.mfu == pytest.approx(0.16 / 0.2)
    assert prefill.mbu == pytest.approx(0.084 / 0.2)
    assert prefill.bound_tokens_per_second == pytest.approx(400 / 0.16)
    # 10 steps: 1.8 M FLOPs; 800 000 + 40 000 + 400 bytes
    assert (decode.device_flops, decode.device_bytes) == (1_800_000, 840_400)
    assert (decode.bound, decode.bound_seconds) == ("memory", pytest.approx(0.8404))
    assert decode.mfu == pytest.approx(0.018 / 2)
    assert decode.mbu == pytest.approx(0.8404 / 2)
    assert decode.tokens_per_second == pytest.approx(40 / 2)
    assert decode.intensity == pytest.approx(1_800_000 / 840_400)
    assert decode.ridge == pytest.approx(100)
    # 4 requests of 11 new tokens
    assert (request.tokens, request.passes) == (44, 11)
    assert request.bound == "compute + memory"
    assert request.bound_seconds == pytest.approx(0.16 + 0.8404)
    assert request.seconds is None


def test_tensor_parallel_divides_all_but_whole_heads():
    """4 devices share 2 heads: each has a quarter of the weights, and half of the cache."""
    prefill, decode, _ = rated(devices=4)
    assert prefill.device_flops == 4_000_000
    assert prefill.device_bytes == 20_000 + 2_000
    assert decode.device_weight_bytes == 200_000
    assert (decode.device_cache_read, decode.device_cache_written) == (20_000, 200)
    assert decode.flops == 1_800_000


def test_precisions_restate_weights_and_cache():
    """Float32 weights take half in bf16, and a float32 cache a quarter in fp8."""
    _, decode, _ = rated(precision="bf16", cache="fp8")
    assert decode.device_weight_bytes == 400_000
    assert decode.device_cache_read == 10_000
    assert decode.peak == 200e6


def test_unfused_bytes_are_those_of_every_operator():
    """The bytes that operators read and write, of which weights and caches are a part."""
    prefill, decode, _ = rated(model="unfused")
    assert prefill.device_bytes == 124_000
    assert prefill.device_activation_bytes == 124_000 - 84_000
    assert decode.device_bytes == 940_400
    assert decode.device_activation_bytes == 940_400 - 840_400


def test_without_a_peak_there_is_no_share():
    """Work and bytes stand, and what needs a device is unknown."""
    prefill, *_ = rated(against=None, prefill=1.0)
    assert prefill.rate == 16e6
    assert (prefill.mfu, prefill.mbu, prefill.bound, prefill.ridge) == (None,) * 4


def test_a_saved_workload_meets_a_device(workload_file, capsys):
    """Rates of all devices become times; the report renders again to the same bytes."""
    words = ["efficiency", "--workload", str(workload_file), "--peak-tflops", "fp32=1e-4"]
    words += ["--bandwidth", "0.001", "--precision", "fp32"]
    speeds = ["--prefill-tokens-per-second", "1k", "--decode-tokens-per-second", "20"]
    assert main([*words, *speeds, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["efficiency"] == []
    prefill, decode, request = content["phases"]
    assert (prefill["seconds"], decode["seconds"]) == (0.4, 2.0)
    assert request["seconds"] == pytest.approx(2.4)
    assert request["tokens_per_second"] == pytest.approx(44 / 2.4)
    assert request["mfu"] == pytest.approx(17_800_000 / (2.4 * 1e8))
    assert decode["mbu"] == pytest.approx(0.8404 / 2)
    saved_file = workload_file.with_name("rates.json")
    assert main([*words, *speeds, "-o", str(saved_file)]) == 0
    again = workload_file.with_name("again.json")
    assert main(["render", str(saved_file), "-o", str(again)]) == 0
    assert again.read_bytes() == saved_file.read_bytes()
    capsys.readouterr()
    assert main(["render", str(saved_file)]) == 0
    page = capsys.readouterr().out
    assert "4 requests of 100 prompt tokens and 11 new tokens" in page
    assert "bandwidth 1.000 MB/s" in page


def test_a_draft_model_has_phases_of_its_own():
    """2 devices share both models; the draft has one head, which each of them keeps."""
    run = GenerationRun(devices=2, precision="fp32", cache="fp32", draft_cache="fp16",
                        seconds={"request": 4.0})  # fmt: skip
    rows = phase_efficiencies(drafted_workload(), run, PEAKS)
    names = ["prefill", "decode", "draft-prefill", "draft-decode", "request"]
    assert [row.phase for row in rows] == names
    _, decode, first, later, request = rows
    # half of 10 x 80 000 bytes of weights, and one of the two heads of 40 400 bytes of cache
    assert decode.device_bytes == 400_000 + 20_200
    # 16-bit weights take twice the bytes in fp32, and the cache stays as it is
    assert (first.device_flops, first.device_bytes) == (800_000, 10_000 + 2_000)
    assert later.device_bytes == 12 * 10_000 + 14_000
    assert (later.tokens, later.passes, later.cache_dtype) == (44, 12, "fp16")
    # 16 000 000 FLOPs at 100 M/s on 2 devices, then three phases of bytes at 1 M/s
    assert request.bound_seconds == pytest.approx(0.08 + 0.4202 + 0.012 + 0.134)
    assert (request.tokens, request.passes, request.macs) == (44, 11 + 13, 9_800_000)
    assert request.mfu == pytest.approx(9_800_000 / (4.0 * 1e8))
    whole = 0.040_000 + 0.002_000 + 0.420_200 + 0.012 + 0.134  # MB, with the model's prefill
    assert request.mbu == pytest.approx(whole / 4.0)
    assert all(row.seconds is None for row in rows[:-1])


def test_a_saved_workload_with_a_draft_model_meets_a_device(workload_file, capsys):
    """The page names both models, what is assumed, and what both keep in memory."""
    counted = (workload_file.parent / "count.json").read_bytes()
    write_workload_report(workload_file, counted, drafted_workload)
    (workload_file.parent / "mine.toml").write_text(
        "[devices.mine]\npeaks = {fp16 = 1e12}\nbandwidth = 1e9\nmemory = [50000.0]\n"
    )
    words = ["efficiency", "--workload", str(workload_file), "--device", "mine", "--precision",
             "fp16", "--catalogue", "mine.toml"]  # fmt: skip
    assert main([*words, "--tokens-per-second", "11"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "draft draft prefill rounds prefill rounds request tokens 400 40 400 44 44" in page
    assert "hf:draft.json proposes 2 tokens in a round, and 1/2 of them are accepted" in page
    assert "8 rounds, with 13 proposed and 3 accepted tokens" in page
    # 45 000 + 2 200 as without a draft, and its 9 000 of weights and 1 000 of cache
    assert "weights and cache take 57.20 kB of a device with 50.00 kB of memory" in page
    assert main([*words, "--decode-tokens-per-second", "11"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: --decode-tokens-per-second cannot be combined with a draft")
    assert lines[1].startswith("hint: give the speed of whole requests: --tokens-per-second")
    assert main([*words[:-4], "--precision", "graph", "--catalogue", "mine.toml"]) == 2
    assert "needs weights of one type" in capsys.readouterr().err


def test_images_are_a_part_of_the_prefill(workload_file, capsys):
    """The page says how many tokens of a prompt are those of images."""
    counted = (workload_file.parent / "count.json").read_bytes()
    write_workload_report(workload_file, counted, images=2, image_tokens=60)
    assert main(["efficiency", "--workload", str(workload_file)]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "100 prompt tokens (60 of 2 images)" in page
    assert "their 60 tokens are prompt tokens, and their encoder is a part of the prefill" in page


def test_rates_per_device_count_for_each(workload_file):
    """5 tokens/s on each of 4 devices are 20 of all."""
    result = crossflops.efficiency(
        workload=str(workload_file), tp=4, per_device=True, decode_tokens_per_second=5
    )
    assert result.phases[1].seconds == 2.0
    assert "1/2 of the cache" in " ".join(str(result).split())


def test_more_than_a_peak_is_an_error(workload_file, capsys):
    """A decode in no time uses more than the bandwidth: status 1, and a warning."""
    words = ["efficiency", "--workload", str(workload_file), "--bandwidth", "0.001"]
    assert main([*words, "--decode-tokens-per-second", "1G"]) == 1
    assert "of the bandwidth is impossible" in capsys.readouterr().out


def test_memory_that_does_not_hold_the_model_is_named(workload_file, capsys):
    """90 000 bytes of float32 weights take 45 000 in fp16, and 4 400 of cache 2 200."""
    (workload_file.parent / "mine.toml").write_text(
        "[devices.mine]\npeaks = {fp16 = 1e12}\nbandwidth = 1e9\nmemory = [40000.0]\n"
    )
    words = ["efficiency", "--workload", str(workload_file), "--device", "mine"]
    assert main([*words, "--catalogue", "mine.toml", "--precision", "fp16"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "weights and cache take 47.20 kB of a device with 40.00 kB of memory" in page


def test_a_model_is_counted_for_the_lengths(workload_file, monkeypatch):
    """`--prompt`, `--generate` and `--batch` reach the count, whose workload is rated."""
    from crossflops.verbs import workload

    asked = []

    def count_generation(request):
        asked.append(request)
        return crossflops.Report.from_json(workload_file.read_bytes()), None

    monkeypatch.setattr(workload, "count_generation", count_generation)
    result = crossflops.efficiency("hf:config.json", prompt=100, generate=11, batch=4)
    assert [row.tokens for row in result.phases] == [400, 40, 44]
    crossflops.efficiency(
        "hf:config.json", prompt=100, generate=11, draft="hf:draft.json", draft_tokens=4,
        acceptance=2.5,
    )  # fmt: skip
    crossflops.efficiency("hf:config.json", prompt=100, generate=11, images=2, image_size=28)
    request, drafted, seen = asked
    assert (request.prompt, request.generate, request.sizes) == (100, 11, {"batch": 4})
    assert (drafted.draft, drafted.draft_tokens, drafted.acceptance) == ("hf:draft.json", 4, "2.5")
    assert (seen.images, seen.sizes) == (2, {"image_size": 28})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--workload workload.json --prompt 8 --generate 2", "--prompt cannot be combined"),
        ("--workload workload.json --batch 8", "--batch cannot be combined"),
        ("--workload workload.json --images 2", "--images cannot be combined"),
        ("--workload workload.json --draft hf:d.json", "--draft cannot be combined"),
        ("--workload workload.json --train", "--train cannot be combined with generated text"),
        ("--workload workload.json --as palm", "--as cannot be combined"),
        ("--workload workload.json --per-device", "--per-device applies only"),
        ("--workload workload.json --bytes fused-ideal", "is not a byte model"),
        ("--workload workload.json --cache-dtype fp7", "'fp7' is unknown"),
        ("--workload workload.json --device a100-sxm4-80gb --precision bf16 --peak-tflops 7",
         "--device and --peak-tflops"),
        ("--workload count.json", "is a report without a workload"),
        ("--workload model.onnx", "is not a report"),
        ("--workload nowhere.json", "cannot read nowhere.json"),
        ("--prompt 8 --generate 2", "--prompt needs a TARGET"),
        ("--generate 2", "--generate needs a TARGET"),
        ("--macs 4G --examples-per-second 3 --draft hf:d.json",
         "--draft applies only to generated text"),
        ("--macs 4G --examples-per-second 3 --images 2",
         "--images applies only to generated text"),
        ("--macs 4G --examples-per-second 3 --cache-dtype fp8",
         "--cache-dtype applies only to generated text"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(words, message, workload_file, capsys):
    """Two lines, status 2."""
    assert main(["efficiency", *words.split()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[0]
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2


def test_one_new_token_has_no_decoding(workload_file, tmp_path, capsys):
    """A speed of decoding steps that there are not is an error."""
    path = tmp_path / "one.json"
    write_workload_report(
        path, (tmp_path / "count.json").read_bytes(), decode=None, generate=1, macs=8_000_000
    )
    words = ["efficiency", "--workload", str(path)]
    assert main([*words, "--decode-tokens-per-second", "3"]) == 2
    assert "one new token needs no decoding step" in capsys.readouterr().err
    assert main([*words, "--prefill-tokens-per-second", "400", "--json"]) == 0
    phases = json.loads(capsys.readouterr().out)["phases"]
    assert [row["phase"] for row in phases] == ["prefill", "request"]
    assert [row["seconds"] for row in phases] == [1.0, 1.0]


def test_mixed_weights_stay_as_they_are_stored():
    """Nothing is restated where the types are unknown, and nothing divided without heads."""
    unknown = msgspec.structs.replace(round_workload(), weight_dtype="", cache_heads=0)
    run = GenerationRun(devices=2, precision="bf16", cache="bf16")
    _, decode, _ = phase_efficiencies(unknown, run, PEAKS)
    assert decode.device_weight_bytes == 400_000
    assert decode.device_cache_read == 20_000  # half the bits, and all of it on both devices
