"""Formulas beside the count of small language models, from their configs to the page."""

import json
import shlex

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, InputError

pytestmark = pytest.mark.tools
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 512,
}  # fmt: skip
# MACs of 48 tokens by hand: projections, feed-forward layers and routers, the head, attention.
CONFIGS = {
    "LlamaForCausalLM": (
        {"model_type": "llama", **SIZES},
        48 * (2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96) + 64 * 1000) + 2 * 48 * 48 * 4 * 32,
    ),
    "MixtralForCausalLM": (
        {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, **SIZES},
        48 * (2 * (64 * 64 * 2 + 64 * 32 * 2 + 2 * 3 * 64 * 96 + 64 * 4) + 64 * 1000)
        + 2 * 48 * 48 * 4 * 32,
    ),
    "Gemma2ForCausalLM": (
        {"model_type": "gemma2", "head_dim": 32, "sliding_window": 16, **SIZES},
        48 * (2 * (64 * 128 * 2 + 64 * 64 * 2 + 3 * 64 * 96) + 64 * 1000) + 2 * 48 * 48 * 4 * 64,
    ),
    "GPT2LMHeadModel": (
        {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1000},
        48 * (2 * (4 * 64 * 64 + 2 * 64 * 256) + 64 * 1000) + 2 * 48 * 48 * 4 * 32,
    ),
}


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a config, and gives its target."""

    def write(name):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"architectures": [name], **CONFIGS[name][0]}))
        return f"hf:{path}"

    return write


def printed(capsys, *words):
    """Return the exit status and the JSON of a command."""
    status = main([*words, "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_formula_of_a_small_model_is_explained(name, config, capsys):
    """The graph is the closed form, which is the sum by hand, and no residual is left."""
    status, report = printed(
        capsys, "compare", config(name), "--seq", "48", "--batch", "3", "--llm", "--strict"
    )
    answers = report["llm"]
    assert status == 0
    assert answers["native_macs"] == answers["closed_form_macs"] == 3 * CONFIGS[name][1]
    assert (answers["tokens"], answers["sequences"]) == (48, 3)
    assert len(answers["accounts"]) > 25
    for account in answers["accounts"]:
        unit = {"training": 6, "forward": 2}[account["passes"]]
        assert account["ours"] == unit * report["totals"]["macs"]
        assert account["residual"] == 0
        booked = sum(row["amount"] for row in account["explanations"])
        assert account["delta"] == account["theirs"] - account["ours"] == booked


def test_a_saved_report_shows_the_same_page(config, capsys, tmp_path):
    """Each formula has a line and its causes; what has no number says why."""
    saved = tmp_path / "report.json"
    words = ["compare", config("MixtralForCausalLM"), "--seq", "48", "--llm"]
    assert main([*words, "-o", str(saved)]) == 0
    capsys.readouterr()
    assert main(["render", str(saved)]) == 0
    page = capsys.readouterr().out
    assert "native, training, 6 FLOPs per MAC" in page
    assert "megatron-lm@d98e8a6" in page
    assert "formula.all-experts" in page
    assert "cookbook@827ee3b has no number: A mixture of experts" in page


def test_one_formula_is_named(config, capsys):
    """In `compare` alone, and in `count` beside a tool, in the order of the command line."""
    target = config("GPT2LMHeadModel")
    _, report = printed(capsys, "compare", target, "--seq", "48", "--as", "kaplan")
    (account,) = report["llm"]["accounts"]
    assert account["theirs"] == 6 * 48 * 2 * (4 * 64 * 64 + 2 * 64 * 256)
    _, report = printed(capsys, "count", target, "--seq", "48", "--as", "kaplan", "--as", "thop")
    folds = [report["as"], *report["as_also"]]
    assert [fold["tool"] for fold in folds] == ["kaplan", "thop"]
    assert folds[0]["total"] == account["theirs"]


def test_a_figure_is_traced_to_a_formula(config, capsys):
    """2 layers of 49 152 parameters in matrices: 6 for each of them is Kaplan's number of a token,
    and all tokens have 48 times as much.
    """
    target, kaplan = config("GPT2LMHeadModel"), 6 * 2 * (4 * 64 * 64 + 2 * 64 * 256)
    _, found = printed(capsys, "identify", f"{kaplan} FLOPs/token", target, "--seq", "48")
    first = found["candidates"][0]
    assert (first["tool"], first["unit"], first["prints"]) == ("kaplan", "FLOPs per token", kaplan)
    assert first["command"] == f"crossflops compare {target} --seq 48 --as kaplan@2020"
    words = ["identify", str(48 * kaplan), target, "--seq", "48", "--as", "kaplan@2020"]
    _, found = printed(capsys, *words)
    first = found["candidates"][0]
    assert (first["tool"], first["unit"]) == ("kaplan", "FLOPs")
    assert first["command"] == f"crossflops count {target} --seq 48 --as kaplan@2020"


def test_a_figure_of_a_run_is_traced_to_a_formula(config, capsys):
    """Kaplan's number of a token x 300 G tokens: the command of the first candidate prints it. The
    number of PaLM at 1024 tokens is found although 48 are given.
    """
    target, kaplan = config("GPT2LMHeadModel"), 6 * 2 * (4 * 64 * 64 + 2 * 64 * 256)
    run = ["--run-tokens", "300B"]
    total = kaplan * 300 * 10**9
    _, found = printed(capsys, "identify", str(total), target, "--seq", "48", *run)
    first = found["candidates"][0]
    assert (first["tool"], first["unit"], first["prints"]) == ("kaplan", "FLOPs of the run", total)
    _, shown = printed(capsys, *shlex.split(first["command"])[1:])
    assert shown["efficiency"][-1]["run"]["flops"] == total
    parameters = 2 * (12 * 64 * 64 + 13 * 64) + (1000 + 1024) * 64 + 2 * 64
    palm = (6 * parameters + 12 * 2 * 64 * 1024) * 300 * 10**9
    words = ["identify", str(palm), target, "--seq", "48", "--as", "palm", *run]
    _, found = printed(capsys, *words)
    first = found["candidates"][0]
    assert (first["inputs"], first["prints"], first["given"]) == (["1x1024"], palm, False)
    assert "--seq 1024" in first["command"]
    assert main(["identify", "9.99e30", target, "--seq", "48", *run]) == 0
    assert "The nearest number is that of" in capsys.readouterr().out


def test_one_speed_by_several_formulas(config, capsys):
    """MFU of the native count and of each: rate x FLOPs of a token / peak."""
    target = config("LlamaForCausalLM")
    words = ["efficiency", target, "--train", "--peak-tflops", "1", "--precision", "bf16"]
    words += ["--as", "kaplan", "--as", "palm"]
    measured = ["--tokens-per-second", "128000", "--run-tokens", "15T"]
    _, content = printed(capsys, *words, *measured)
    rows = content["efficiency"]
    assert [row["numerator"] for row in rows] == ["native MACs", "kaplan@2020", "palm@2022"]
    accounts = {account["tool"]: account for account in content["report"]["llm"]["accounts"]}
    for row, tool in zip(rows[1:], ("kaplan", "palm"), strict=True):
        assert row["ratio"] == pytest.approx(1000 * accounts[tool]["theirs"] / 1e12)
        assert accounts[tool]["residual"] == 0
        # the usual input has 128 tokens
        assert row["run"]["flops"] == 15 * 10**12 * accounts[tool]["theirs"] // 128
    # a published MFU is that of the first formula, and gives the others
    _, content = printed(capsys, *words, "--mfu", repr(rows[1]["ratio"]))
    published = content["efficiency"]
    for row, before in zip(published, rows, strict=True):
        assert row["ratio"] == pytest.approx(before["ratio"])
        assert row["tokens_per_second"] == pytest.approx(128_000)
    assert "follows from an MFU of" in " ".join(published[0]["assumptions"])


def test_a_formula_about_training_needs_a_training_step(config, capsys):
    """An MFU of a forward pass is not made of 6 N."""
    words = ["efficiency", config("LlamaForCausalLM"), "--peak-tflops", "1", "--as", "palm"]
    assert main([*words, "--tokens-per-second", "128000"]) == 2
    assert "palm@2022 is a formula for training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--llm", "--as", "palm"), "--llm selects all formulas"),
        (("--llm", "--tool", "thop"), "--tool has no effect here: --llm runs no tool"),
        (("--as", "thop"), "thop is not a formula for language models"),
        (("--as", "torchtitan*"), "no convention matches"),
    ],
)
def test_what_does_not_go_together_is_refused(words, message, config, capsys):
    """One line of what is wrong, before a model is built."""
    assert main(["compare", config("LlamaForCausalLM"), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_is_none_of_language_is_refused(tmp_path, capsys):
    """A formula is not applied to what it is not about."""
    path = tmp_path / "linear.py"
    path.write_text("import torch\ndef model():\n    return torch.nn.Linear(4, 3)\n")
    assert main(["count", f"{path}:model", "--input", "2x4", "--as", "palm"]) == 2
    assert (
        "formulas for language models require the config of a model of transformers"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("model_type", "name"), [("llama", "LlamaForCausalLM"), ("t5", "T5ForConditionalGeneration")]
)
def test_a_config_without_architectures_names_the_key(model_type, name, tmp_path, capsys):
    """transformers builds the class without an output matrix from it, which has no formulas."""
    path = tmp_path / "config.json"
    sizes = SIZES if model_type == "llama" else {"d_model": 32, "num_layers": 1, "d_ff": 48}
    path.write_text(json.dumps({"model_type": model_type, **sizes}))
    assert main(["compare", f"hf:{path}", "--seq", "16", "--llm"]) == 2
    lines = capsys.readouterr().err.splitlines()[-2:]
    assert 'because the config has no "architectures"' in lines[0]
    assert lines[1] == f'hint: add "architectures": ["{name}"] to the config'


def test_python_compares_formulas_as_the_command_does(config, capsys):
    """as_ and llm are --as and --llm; no tool runs, so options of tools are refused."""
    target = config("LlamaForCausalLM")
    assert main(["compare", target, "--seq", "48", "--as", "palm", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    with pytest.warns(CrossflopsWarning):
        report = crossflops.compare(target, seq=48, as_="palm")
    assert json.loads(report.to_json())["llm"] == answer["llm"]
    with pytest.raises(InputError, match="tools cannot be combined with llm or as_"):
        crossflops.compare(target, llm=True, tools=["thop"])
