"""The workload of a small Llama, against FlopCounterMode around transformers' `generate`.

Other architectures, which take longer, are in test_workload_models.py.
"""

import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import crossflops
from crossflops.cli import main
from crossflops.errors import InputError
from crossflops.ir.polynomial import evaluate_polynomial
from tests.verbs.language_models import BATCH, LLAMA, NEW, PROMPT, check_against_generate

pytestmark = pytest.mark.tools


@pytest.fixture
def config(tmp_path):
    """Return the target of the config."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return f"hf:{path}"


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_a_saved_llama_renders_the_page_again(config, tmp_path, capsys):
    """The report has the workload of a real run, and is read back to the same bytes."""
    target, file = config, tmp_path / "report.json"
    arguments = ["count", target, "--prompt", str(PROMPT), "--generate", str(NEW)]
    assert main([*arguments, "--batch", str(BATCH), "-o", str(file)]) == 0
    report = json.loads(file.read_text())
    workload = report["workload"]
    assert workload["generate"] == NEW
    # By hand, with p tokens at 1 layer of 4 heads of 16: 30 720 of a token in the weights of the
    # layer, 2 p^2 64 of its attention, and 64 x 100 of the head of the last token.
    prefill = PROMPT * 30_720 + 2 * PROMPT**2 * 64 + 6_400
    assert workload["prefill"]["amounts"]["macs"] == BATCH * prefill
    read = crossflops.Report.from_json(file.read_text()).workload
    for prompt in (5, 100):
        by_hand = BATCH * (prompt * 30_720 + 2 * prompt**2 * 64 + 6_400)
        assert evaluate_polynomial(read.prefill.pieces[0].macs, {"prompt": prompt}) == by_hand
    # steps at contexts of p + 1 to p + g - 1, each with one query
    steps = BATCH * sum(30_720 + 2 * context * 64 + 6_400 for context in range(8, 17))
    assert evaluate_polynomial(read.decode_macs, {"prompt": 7, "generate": 10}) == steps
    # keys and values of 2 heads of 16 floats, for each token but the last new one
    assert read.cache_bytes == 2 * 2 * 16 * 4 * BATCH * (PROMPT + NEW - 1)
    assert (read.cache_heads, read.weight_dtype) == (2, "float32")
    # a layer of 30 720 and two norms, the table, the head and a norm, in floats
    assert read.model_bytes == 4 * (30_720 + 128 + 2 * 6_400 + 64)
    # A pass reads of the table a row for each of its tokens, and the 8 frequencies of positions;
    # the causal mask, which an export folds into a constant, is not a weight.
    stored = 30_720 + 128 + 6_400 + 64 + 8
    assert read.prefill.weight_bytes == 4 * (stored + BATCH * PROMPT * 64)
    assert read.decode.weight_bytes == 4 * (stored + BATCH * 64)
    check_against_generate(read, target, lengths=3)
    assert report["request"]["flags"] == {"batch": BATCH, "generate": NEW, "prompt": PROMPT}
    capsys.readouterr()
    assert main(["render", str(file)]) == 0
    page = capsys.readouterr().out
    assert f"{BATCH} requests of {PROMPT} prompt tokens and {NEW} new tokens" in page
    assert main(["render", str(file), "-o", str(tmp_path / "again.json")]) == 0
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "8"], "--prompt requires --generate"),
        (["--generate", "8"], "--generate requires --prompt"),
        (["--prompt", "8", "--generate", "2", "--seq", "4"], "--seq cannot be combined"),
        (["--prompt", "8", "--generate", "2", "--train"], "--train cannot be combined"),
        (["--prompt", "8", "--generate", "2", "--as", "thop"], "--as cannot be combined"),
        (["--prompt", "8", "--generate", "2", "--images", "1"], "--images does not support"),
        (["--prompt", str(10**20), "--generate", "2"], f"takes a tensor of 1 x {10**20} elements"),
    ],
)
def test_options_that_do_not_apply_are_errors(options, message, config, capsys):
    """Such options get a message of two lines."""
    assert main(["count", config, *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[0]
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("prompt", 0), ("prompt", True), ("prompt", 2.5), ("prompt", "8"), ("generate", -1),
     ("images", 0), ("draft_tokens", 0)],
)  # fmt: skip
def test_numbers_of_tokens_are_whole_and_above_zero(name, value, config):
    """Python gets the error of the command line, before a model is built."""
    options = {"prompt": 8, "generate": 2, name: value}
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(InputError, match=f"{flag} must be a whole number of at least 1, got "):
        crossflops.count(config, **options)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": ["BertModel"], "model_type": "bert"}, "BertModel cannot"),
        ({"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"},
         "the input of WhisperForConditionalGeneration is input_features"),
        ({"architectures": ["MambaForCausalLM"], "model_type": "mamba"},
         "MambaForCausalLM does not have one"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_models_without_such_a_cache_are_refused(config, message, tmp_path, capsys):
    """An encoder, a model of sounds and a state space, each with its reason."""
    path = tmp_path / "config.json"
    small = {"hidden_size": 16, "num_hidden_layers": 1, "d_model": 16, "vocab_size": 50}
    heads = ("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads")
    small |= {"encoder_layers": 1, "decoder_layers": 1, **dict.fromkeys(heads, 2)}
    ids = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    small |= dict.fromkeys(ids, 0)
    path.write_text(json.dumps({**config, **small}))
    assert main(["count", f"hf:{path}", "--prompt", "4", "--generate", "2"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[0]
    assert len(lines) == 2
