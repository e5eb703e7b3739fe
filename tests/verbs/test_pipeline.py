"""Pipelines of ONNX files: sums over the runs of their parts, by hand."""

import json
import os

import numpy as np
import pytest

import crossflops
from crossflops.cli import main
from tests.onnx_files import saved, with_weights

# MACs of a run by hand: 2 x 4 x 3 = 24, 2 x 3 x 5 = 30 and 2 x 5 x 1 = 10; FLOPs twice these, and
# one for each of the 6 elements of the Relu. Parameters: 12, 15 and 5 floats.
ENCODER = "g (float[2,4] x, float[4,3] w) => (float[2,3] y) { h = MatMul(x, w) y = Relu(h) }"
UNET = "g (float[N,3] x, float[3,5] w) => (float[N,5] y) { y = MatMul(x, w) }"
VAE = "g (float[2,5] x, float[5,1] w) => (float[2,1] y) { y = MatMul(x, w) }"
PIPELINE = """
[[part]]
name = "text encoder"
target = "encoder.onnx"

[[part]]
name = "unet"
target = "unet.onnx"
times = 50
dims = {N = 2}

[[part]]
name = "vae"
target = "vae.onnx"
times = 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with three files and a pipeline; the current one is beside it."""
    (tmp_path / "models").mkdir()
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    models = tmp_path / "models"
    for name, text in (("encoder", ENCODER), ("unet", UNET), ("vae", VAE)):
        saved(models, with_weights(text, "w"), f"{name}.onnx")
    (models / "pipeline.toml").write_text(PIPELINE)
    return models


def test_totals_are_the_sums_over_all_runs(folder):
    """The unet runs 50 times, and its parameters are there once."""
    report = crossflops.count(folder / "pipeline.toml")
    assert report.macs == 24 + 50 * 30 + 10
    assert report.flops == (48 + 6) + 50 * 60 + 20
    assert report.params == 12 + 15 + 5
    # each operator alone: its inputs and outputs, floats; the Relu moves 6 and 6
    assert report.totals.bytes_read == 4 * ((8 + 12 + 6) + 50 * (6 + 15) + (10 + 5))
    assert report.totals.bytes_written == 4 * ((6 + 6) + 50 * 10 + 2)
    assert report.memory.param_bytes == 4 * (12 + 15 + 5)
    # the most of one part: 8 inputs of the encoder, and the inputs and outputs of its Relu
    assert report.memory.peak_activation_bytes == 4 * (8 + 6 + 6)
    assert report.memory.peak_node.startswith("text encoder/")
    assert [(part.name, part.times, part.macs) for part in report.parts] == [
        ("text encoder", 1, 24), ("unet", 50, 30), ("vae", 1, 10),
    ]  # fmt: skip


def test_the_working_folder_stays_as_it_is(folder, monkeypatch):
    """Paths of parts begin beside the file; all threads of a process share one working folder."""
    changed = []
    monkeypatch.setattr(os, "chdir", changed.append)
    for name in ("pipeline.toml", "../models/pipeline.toml"):
        assert crossflops.count(str(folder / name)).macs == 1534
    assert crossflops.count("../models/pipeline.toml").macs == 1534
    assert changed == []


def test_a_file_of_the_working_folder_is_not_a_part(folder, capsys):
    """A part that is missing beside the pipeline is an error, even if the name exists here."""
    (folder / "vae.onnx").rename(folder.parent / "beside" / "vae.onnx")
    assert main(["count", "../models/pipeline.toml"]) == 2
    assert capsys.readouterr().err.startswith("error: vae: cannot read ../models/vae.onnx:")


@pytest.mark.torch
def test_code_beside_the_pipeline(folder):
    """A file with a callable, a module beside the pipeline, and a file with values of inputs."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (folder / "own.py").write_text(
        "import torch\ndef build(width=4):\n    return torch.nn.Linear(width, 3)\n"
    )
    np.savez(folder / "in.npz", input=np.zeros((2, 4), "float32"))
    (folder / "code.toml").write_text(
        '[[part]]\ntarget = "own.py:build"\ninputs_file = "in.npz"\n'
        '[[part]]\ntarget = "own:build"\ninputs = ["5x8"]\narguments = {width = 8}\n'
    )
    report = crossflops.count("../models/code.toml")
    assert [part.macs for part in report.parts] == [2 * 4 * 3, 5 * 8 * 3]
    assert [part.target for part in report.parts] == ["own.py:build", "own:build"]


def test_every_table_has_all_runs(folder):
    """Operators, modules and nodes each add up to the totals."""
    report = crossflops.count(str(folder / "pipeline.toml"))
    assert sum(row.macs for row in report.by_op) == sum(row.macs for row in report.nodes)
    assert sum(row.macs for row in report.nodes) == report.macs
    assert {row.op: (row.count, row.macs) for row in report.by_op} == {
        "MatMul": (3, report.macs), "Relu": (1, 0),
    }  # fmt: skip
    by_path = {row.path: row.macs for row in report.modules}
    assert by_path[""] == report.macs
    assert (by_path["text encoder"], by_path["unet"], by_path["vae"]) == (24, 1500, 10)


def test_the_command_prints_the_parts(folder, capsys):
    """The page has a row for each part, and what is saved renders the same page."""
    file = folder / "report.json"
    assert main(["count", str(folder / "pipeline.toml")]) == 0
    page = capsys.readouterr().out
    [row] = [line for line in page.splitlines() if line.lstrip().startswith("unet ")]
    assert row.split()[1] == "50"
    assert "1 500" in row
    assert max(map(len, page.splitlines())) <= 80
    assert main(["count", str(folder / "pipeline.toml"), "-o", str(file)]) == 0
    plain = json.loads(file.read_text())
    assert [part["times"] for part in plain["parts"]] == [1, 50, 1]
    capsys.readouterr()
    assert main(["render", str(file)]) == 0
    assert "text encoder" in capsys.readouterr().out
    assert main(["count", str(folder / "pipeline.toml"), "--by", "module", "--json"]) == 0
    assert "unet" in capsys.readouterr().out


def test_a_model_in_two_parts_has_its_weights_once(folder, capsys):
    """The same target at another size: its parameters are counted once, and its work is added."""
    two = PIPELINE + '[[part]]\nname = "large unet"\ntarget = "unet.onnx"\ndims = {N = 8}\n'
    (folder / "two.toml").write_text(two)
    report = crossflops.count(str(folder / "two.toml"))
    assert report.macs == 24 + 50 * 30 + 10 + 8 * 3 * 5
    assert report.params == 12 + 15 + 5
    assert report.parts[-1].weights_of == "unet"
    assert main(["count", str(folder / "two.toml")]) == 0
    assert "large unet has the weights of unet" in " ".join(capsys.readouterr().out.split())


def test_what_is_not_counted_bears_the_name_of_its_part(folder, capsys):
    """The node of an unknown operator is named with its part, and --strict fails."""
    odd = "g (float[2,4] x) => (float[2,4] y) { h = local.Odd(x) y = Relu(h) }"
    saved(folder, with_weights(odd), "odd.onnx")
    (folder / "odd.toml").write_text('[[part]]\nname = "safety"\ntarget = "odd.onnx"\ntimes = 2\n')
    report = crossflops.count(str(folder / "odd.toml"))
    # what comes after it has unknown sizes
    assert [row.node.partition("/")[0] for row in report.uncounted] == ["safety", "safety"]
    assert report.parts[0].uncounted == 2
    assert main(["count", str(folder / "odd.toml"), "--strict"]) == 1
    assert "safety/" in capsys.readouterr().out


def test_a_row_of_a_table(folder, capsys):
    """`table` takes a pipeline beside a model."""
    targets = [str(folder / name) for name in ("pipeline.toml", "vae.onnx")]
    assert main(["table", *targets, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["macs"] for row in rows] == [1534, 10]


WRONG = {
    "": "has no [[part]] table",
    "part = 3": "has no [[part]] table",
    "[[parts]]\ntarget = 'vae.onnx'": "unknown key parts",
    "[[part]": "is not a valid TOML file",
    "[[part]]\nname = 'vae'": "target of part 1",
    "[[part]]\ntarget = 'vae.onnx'\ntimes = 0": "times of part 1",
    "[[part]]\ntarget = 'vae.onnx'\ntimes = 1.5": "times of part 1",
    "[[part]]\ntarget = 'vae.onnx'\nname = ''": "name of part 1",
    "[[part]]\ntarget = 'vae.onnx'\ntime = 5": "unknown key time in part 1",
    "[[part]]\ntarget = 'vae.onnx'\ninputs = 3": "inputs of part 1",
    "[[part]]\ntarget = 'vae.onnx'\n[[part]]\ntarget = 'vae.onnx'": "two parts with the name",
    "[[part]]\ntarget = 'pipeline.toml'": "is a pipeline itself",
    "[[part]]\nname = 'v'\ntarget = 'none.onnx'": "v: ",
    "[[part]]\nname = 'v'\ntarget = 'unet.onnx'": "v: ",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_refused_in_two_lines(text, folder, capsys):
    """The key, the part and the remedy are named."""
    (folder / "wrong.toml").write_text(text)
    assert main(["count", str(folder / "wrong.toml")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert WRONG[text] in lines[0]
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2


@pytest.mark.parametrize(
    "options",
    [
        "--input 2x4", "--arg width=3", "--dim N=2", "--batch 4", "--train", "--as thop",
        "--observe", "--vary N", "--weights real", "--prompt 8 --generate 2", "--no-grad",
        "--cache-dtype fp8", "--draft hf:draft.json", "--shapes",
    ],
)  # fmt: skip
def test_options_without_a_use_are_refused(options, folder, capsys):
    """Each by its name."""
    assert main(["count", str(folder / "pipeline.toml"), *options.split()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert options.split()[0] in lines[0]
    assert len(lines) == 2


@pytest.mark.parametrize(
    "verb", ["compare", "export --to onnx -o x.onnx", "diff ../models/vae.onnx"]
)
def test_verbs_of_one_model_refuse_it(verb, folder, capsys):
    """They say which verbs take a pipeline."""
    name, *options = verb.split()
    assert main([name, *options, str(folder / "pipeline.toml")]) == 2
    assert "which only count and table take" in capsys.readouterr().err
