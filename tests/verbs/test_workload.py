"""Workloads of small language models, against FlopCounterMode around transformers' `generate`."""

import json
import random

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import crossflops
from crossflops.cli import main
from crossflops.ir.polynomial import evaluate
from crossflops.targets.target import build_target

pytestmark = pytest.mark.tools
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "torch_dtype": "float32",
}  # fmt: skip
# Counts of passes take nearly all of the time, so that each model is counted once. Mixtral has one
# layer, since its layers are alike; those of the others are of two kinds, or share a bias.
CONFIGS = {
    "LlamaForCausalLM": {"model_type": "llama", **SIZES},
    "MixtralForCausalLM": {"model_type": "mixtral", "num_local_experts": 4, **SIZES,
                           "num_hidden_layers": 1},
    "Gemma3ForCausalLM": {
        "model_type": "gemma3_text", "head_dim": 16, "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"], **SIZES,
    },
    "T5ForConditionalGeneration": {
        "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2,
        "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 100, "torch_dtype": "float32",
        "decoder_start_token_id": 0,
    },
}  # fmt: skip
BATCH, PROMPT, NEW = 2, 9, 7


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a config, and gives its target."""

    def write(name):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"architectures": [name], **CONFIGS[name]}))
        return f"hf:{path}"

    return write


def eager_model(target):
    """Return the model with eager attention, which the counter of PyTorch sees."""
    model, _ = build_target(target, {})
    model.set_attn_implementation("eager")
    if model.config.model_type == "mixtral":  # the counter has no formula for grouped products
        model.set_experts_implementation("eager")
    return model


def generated_macs(model, prompt, new):
    """Return the MACs of a run of `generate`, as PyTorch counts them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.generate(
            torch.ones(BATCH, prompt, dtype=torch.int64), max_new_tokens=new, min_new_tokens=new,
            do_sample=False, use_cache=True, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    return counter.get_total_flops() // 2


def macs_by_polynomials(workload, prompt, new):
    """Return the MACs of a prefill and its steps, each by the piece that holds at its context."""
    begin = prompt if workload.kind == "decoder" else 1
    total = evaluate(workload.prefill.pieces[0].macs, {"prompt": prompt})
    for context in range(begin + 1, begin + new):
        [piece] = [own for own in workload.decode.pieces if own.first <= context <= own.last]
        total += evaluate(piece.macs, {"prompt": prompt, "context": context})
    return total


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "LlamaForCausalLM"])
def test_a_workload_is_what_generate_does(name, config):
    """All passes together have the MACs of a real run."""
    target = config(name)
    workload = crossflops.count(target, prompt=PROMPT, generate=NEW, batch=BATCH).workload
    check_against_generate(workload, target, name)


def check_against_generate(workload, target, name):
    """Compare a workload with real runs: of its own lengths, and of eight random ones."""
    model = eager_model(target)
    assert workload.macs == generated_macs(model, PROMPT, NEW)
    assert workload.prefill.passes + workload.decode.passes == NEW
    rng = random.Random(name)
    for _ in range(8):
        lengths = rng.randint(workload.prefill.pieces[0].first, PROMPT), rng.randint(2, NEW)
        assert macs_by_polynomials(workload, *lengths) == generated_macs(model, *lengths)


@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_a_saved_llama_renders_the_page_again(config, tmp_path, capsys):
    """The report has the workload of a real run, and is read back to the same bytes."""
    target, file = config("LlamaForCausalLM"), tmp_path / "report.json"
    arguments = ["count", target, "--prompt", str(PROMPT), "--generate", str(NEW)]
    assert main([*arguments, "--batch", str(BATCH), "-o", str(file)]) == 0
    report = json.loads(file.read_text())
    workload = report["workload"]
    assert workload["generate"] == NEW
    # By hand, with p tokens at 2 layers of 4 heads of 16: 30 720 of a token in the weights of a
    # layer, 2 p^2 64 of its attention, and 64 x 100 of the head of the last token.
    prefill = 2 * (PROMPT * 30_720 + 2 * PROMPT**2 * 64) + 6_400
    assert workload["prefill"]["amounts"]["macs"] == BATCH * prefill
    read = crossflops.Report.from_json(file.read_text()).workload
    for prompt in (5, 100):
        by_hand = BATCH * (2 * (prompt * 30_720 + 2 * prompt**2 * 64) + 6_400)
        assert evaluate(read.prefill.pieces[0].macs, {"prompt": prompt}) == by_hand
    # steps at contexts of p + 1 to p + g - 1, each with one query
    steps = BATCH * sum(2 * (30_720 + 2 * context * 64) + 6_400 for context in range(8, 17))
    assert evaluate(read.decode_macs, {"prompt": 7, "generate": 10}) == steps
    # keys and values of 2 layers, 2 heads of 16 floats, for each token but the last new one
    assert read.cache_bytes == 2 * 2 * 2 * 16 * 4 * BATCH * (PROMPT + NEW - 1)
    assert (read.cache_heads, read.weight_dtype) == (2, "float32")
    # 2 layers of 30 720 and two norms, the table, the head and a norm, in floats
    assert read.model_bytes == 4 * (2 * (30_720 + 128) + 2 * 6_400 + 64)
    # A pass reads of the table a row for each of its tokens, and the 8 frequencies of positions;
    # the causal mask, which an export folds into a constant, is not a weight.
    stored = 2 * (30_720 + 128) + 6_400 + 64 + 8
    assert read.prefill.weight_bytes == 4 * (stored + BATCH * PROMPT * 64)
    assert read.decode.weight_bytes == 4 * (stored + BATCH * 64)
    check_against_generate(read, target, "LlamaForCausalLM")
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
    ],
)
def test_options_that_do_not_apply_are_errors(options, message, config, capsys):
    """Such options get a message of two lines."""
    assert main(["count", config("LlamaForCausalLM"), *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[0]
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2
