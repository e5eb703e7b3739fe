"""Files that OpenVINO wrote count what their models do, by hand; wrong files are refused.

`write_files.py` beside this file wrote them. None of OpenVINO is needed to read them.
"""

import json
from pathlib import Path
from shutil import copy

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, TargetError

FILES = Path(__file__).parent / "files"
# the sizes of each model are in write_files.py
CASES = {
    # 8x8 positions: 27 for each of 8 channels, 9 (depthwise), 4 for each of 4; then a 4x5 layer
    "convnet": ((), {"float32": 64 * (8 * 27 + 8 * 9 + 4 * 4) + 4 * 5}),
    # 2 sequences of 5: six products of 8 by 8 or 16, and two of 5x5 scores for 2 heads of 4
    "attention": (("2x5",), {"float32": 10 * (4 * 64 + 2 * 128) + 2 * 2 * 2 * 25 * 4}),
    # 10 steps: 4 gates of 6 from 4 + 6 in two directions, 3 gates of 3 from 12 + 3
    "recurrent": (("2x5x4",), {"float32": 10 * (2 * 24 * 10 + 9 * 15)}),
    # 8x8 to 8 channels, four taps of 8 by 4 for each position, then 30x30 of 2 channels
    "upsampler": ((), {"float32": 64 * 8 * 27 + 64 * 4 * 32 + 900 * 2 * 36}),
    "repeated": (("2x4",), {"float32": 5 * 2 * 16}),
    # 2 rows of 5 steps of 4 gates of 6
    "iterated": ((), {"float32": 10 * 24 * 10}),
    "compressed": (("3x64",), {"float32xint8": 3 * 64 * 32, "float32xint4": 3 * 32 * 8}),
    "quantized": ((), {"int8": 64 * 4 * 27}),
}


@pytest.mark.parametrize("name", CASES)
def test_macs_are_those_of_the_model(name: str) -> None:
    """By hand, under the types that the file stores, and nothing is uncounted."""
    inputs, macs = CASES[name]
    report = crossflops.count(str(FILES / f"{name}.xml"), list(inputs))
    assert report.macs_by_precision == macs
    assert not report.uncounted
    assert not report.warnings


def test_half_precision_weights_take_half_the_bytes() -> None:
    """MACs are those of the float model, with weights as the file has them."""
    full, half = (
        crossflops.count(str(FILES / f"{name}.xml")) for name in ("convnet", "convnet_half")
    )
    assert half.macs == full.macs
    assert half.params == full.params
    assert set(half.macs_by_precision) == {"float32xfloat16"}
    assert half.memory.param_bytes == full.memory.param_bytes / 2


def test_weights_are_the_parameters() -> None:
    """8*27 + 8*9 + 4*4 + 4*5 weights of products, and 8 + 8 + 4 + 5 biases."""
    assert crossflops.count(str(FILES / "convnet.xml")).params == 324 + 25
    # one number of int8 or uint4 each; scales and zero points are none
    report = crossflops.count(str(FILES / "compressed.xml"), ["3x64"])
    assert report.memory.param_bytes_by_type == {"int8": 64 * 32, "uint4": 8 * 32 // 2}


def test_modules_are_those_of_pytorch() -> None:
    """Names of layers tell of them."""
    report = crossflops.count(str(FILES / "convnet.xml"))
    paths = {row.path for row in report.nodes}
    assert {"depthwise", "head"} <= paths


def test_a_variable_begins_with_its_first_value() -> None:
    """4 rows times 8x8, and scores of 4 rows with 4 keys: nothing is kept before them."""
    with pytest.warns(CrossflopsWarning, match="keeps 1 variable between its runs"):
        report = crossflops.count(str(FILES / "cached.xml"), ["1x4x8"])
    assert report.macs == 4 * 64 + 4 * 4 * 8


def test_an_operation_without_a_formula_is_named() -> None:
    """Boxes are moved by 10x4x4; how many are kept is not known."""
    report = crossflops.count(str(FILES / "selected.xml"))
    assert report.macs == 160
    assert [row.op for row in report.uncounted] == ["openvino.NonMaxSuppression"]


def test_open_sizes_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The command line that binds them is shown."""
    assert main(["count", str(FILES / "attention.xml")]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == "error: sizes of inputs are unknown: ids [?, ?]"
    assert hint.endswith("attention.xml --input ids=1x1")


def test_fixed_sizes_may_be_overridden() -> None:
    """With a warning, as those of an ONNX file: four times the positions."""
    with pytest.warns(CrossflopsWarning, match="declares the shape 1x3x16x16"):
        report = crossflops.count(str(FILES / "convnet.xml"), ["1x3x32x32"])
    assert report.macs == 4 * 64 * (8 * 27 + 8 * 9 + 4 * 4) + 20


WRONG = {
    "other.xml": (b"<foo/>", "is not a model of OpenVINO: its root is <foo>, not <net>"),
    "text.xml": (b"layers", "is not valid XML"),
    "empty.xml": (b"", "is not valid XML"),
    "old.xml": (b'<net version="7"/>', "has version 7 of OpenVINO's format"),
    "hollow.xml": (b'<net version="11"><layers/></net>', "there are no layers"),
    "entity.xml": (
        b'<!DOCTYPE net [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><net>&b;</net>',
        "contains <!DOCTYPE>",
    ),
    "loose.xml": (
        b'<net version="11"><layers><layer id="0" name="a" type="Result">'
        b'<input><port id="0"/></input></layer></layers><edges/></net>',
        "input 0 of 'a' comes from no layer",
    ),
    "lfs.xml": (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two lines that name what is wrong."""
    content, message = WRONG[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["count", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert message in lines[0]


def test_missing_constants_are_named(tmp_path: Path) -> None:
    """A file without its .bin is counted only where no size is in there."""
    copy(FILES / "attention.xml", tmp_path)
    with pytest.raises(TargetError, match=r"needs a constant of attention\.bin"):
        crossflops.count(str(tmp_path / "attention.xml"), ["2x5"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train"], "a training step of a model of OpenVINO is not counted yet"),
        (["--train-mode"], "--train-mode has no effect"),
        (["--arg", "a=1"], "--arg cannot be used"),
        (["--input", "1x3x8"], "has 4 dimensions"),
        (["--input", "y=1x3x8x8"], "the model has no input 'y'"),
    ],
)
def test_options_without_effect_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each in two lines."""
    assert main(["count", str(FILES / "convnet.xml"), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.fixture(autouse=True)
def _without_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO's converter reports its use from a thread that forks, and two forks at a time can
    wait for each other; it does not where CI is set.
    """
    monkeypatch.setenv("CI", "true")


@pytest.mark.frameworks
def test_every_file_is_written_again_alike(tmp_path: Path) -> None:
    """By OpenVINO itself: the same counts from files of today."""
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    from tests.frontends.openvino import write_files

    write_files.FILES = tmp_path / "files"
    write_files.main()
    for name, (inputs, macs) in CASES.items():
        report = crossflops.count(str(write_files.FILES / f"{name}.xml"), list(inputs))
        assert report.macs_by_precision == macs, name


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1"])
def test_networks_count_as_in_pytorch(name: str, tmp_path: Path) -> None:
    """Files of whole networks have the MACs of their source."""
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    import torch

    from crossflops.targets.target import build_target

    model, _ = build_target(f"torchvision.models:{name}", {"weights": None})
    image = torch.zeros(1, 3, 64, 64)
    openvino.save_model(
        openvino.convert_model(model.eval(), example_input=image), tmp_path / "model.xml"
    )
    report = crossflops.count(str(tmp_path / "model.xml"), ["1x3x64x64"])
    assert report.macs == crossflops.count(model, image).macs
    assert not report.uncounted


@pytest.mark.frameworks
def test_a_network_with_open_sizes_counts_as_in_pytorch(tmp_path: Path) -> None:
    """A Swin pads by sizes that the file computes: 18 rows of patches are no multiple of 4."""
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    import torch

    from crossflops.targets.target import build_target

    sizes = {
        "patch_size": [4, 4], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": [4, 4], "num_classes": 10,
    }  # fmt: skip
    model, _ = build_target("torchvision.models.swin_transformer:SwinTransformer", sizes)
    openvino.save_model(
        openvino.convert_model(
            model.eval(),
            example_input=torch.zeros(1, 3, 64, 64),
            input=[openvino.PartialShape([-1, 3, -1, -1])],
        ),
        tmp_path / "swin.xml",
    )
    report = crossflops.count(str(tmp_path / "swin.xml"), ["2x3x72x72"])
    assert report.macs == crossflops.count(model, torch.zeros(2, 3, 72, 72)).macs
    assert not report.uncounted


# Two layers of width 32; for each of 2 x 16 tokens the products, and 16 x 32 twice of attention.
_TOKENS = 2 * 16
LANGUAGE_MODELS = {
    # queries, keys, values and outputs 4 x 32^2, 2 x 32 x 128; 100 words
    "gpt2": (
        {"architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_layer": 2, "n_head": 2},
        _TOKENS * (2 * (4 * 32**2 + 2 * 32 * 128 + 2 * 16 * 32) + 32 * 100),
    ),
    # keys and values of half the width, three products of 32 x 64; angles of 4 for each position
    "llama": (
        {
            "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        },
        _TOKENS * (2 * (3 * 32**2 + 3 * 32 * 64 + 2 * 16 * 32) + 32 * 100),
    ),
}  # fmt: skip


@pytest.mark.frameworks
@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_a_language_model_counts_as_in_pytorch(kind: str, tmp_path: Path) -> None:
    """Its batch and its tokens are open; the angles of positions are beside the sum by hand."""
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    import torch

    from crossflops.targets.target import build_target

    options, by_hand = LANGUAGE_MODELS[kind]
    config = {
        **options, "model_type": kind, "vocab_size": 100, "max_position_embeddings": 128,
        "use_cache": False, "bos_token_id": 0, "eos_token_id": 0, "dtype": "float32",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    model, _ = build_target(f"hf:{tmp_path}", {})

    class Logits(torch.nn.Module):
        """The model as a function of two tensors that returns one."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model.eval()

        def forward(self, input_ids: object, attention_mask: object) -> object:
            """Return the logits."""
            result = self.model(input_ids=input_ids, attention_mask=attention_mask)
            return result.logits

    tokens = torch.ones(2, 8, dtype=torch.long)
    openvino.save_model(
        openvino.convert_model(Logits(), example_input=(tokens, tokens)), tmp_path / "model.xml"
    )
    shapes = ["input_ids=2x16:int64", "attention_mask=2x16:int64"]
    report = crossflops.count(str(tmp_path / "model.xml"), shapes)
    tokens = torch.ones(2, 16, dtype=torch.long)
    source = crossflops.count(Logits(), (tokens, tokens))
    assert report.macs == source.macs
    assert source.macs - by_hand in (0, 4 * _TOKENS, 4 * 16)
    assert not report.uncounted
