"""Small language models, and the MACs of real runs of transformers' `generate`."""

import itertools
import random

from crossflops.ir.polynomial import evaluate_polynomial
from crossflops.targets.target import build_target

SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "torch_dtype": "float32",
}  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", **SIZES, "num_hidden_layers": 1,
}  # fmt: skip
BATCH, PROMPT, NEW = 2, 9, 7


def eager_model(target):
    """Return the model with eager attention, which the counter of PyTorch sees."""
    model, _ = build_target(target, {})
    model.set_attn_implementation("eager")
    if hasattr(model.config, "num_local_experts"):  # the counter has no formula for their products
        model.set_experts_implementation("eager")
    return model


def generated_macs(model, prompt, new, batch=BATCH):
    """Return the MACs of a run of `generate`, as PyTorch counts them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.generate(
            torch.ones(batch, prompt, dtype=torch.int64), max_new_tokens=new, min_new_tokens=new,
            do_sample=False, use_cache=True, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    return counter.get_total_flops() // 2


def macs_by_polynomials(workload, prompt, new):
    """Return the MACs of a prefill and its steps, each by the piece that holds at its context."""
    begin = prompt if workload.kind == "decoder" else 1
    total = evaluate_polynomial(workload.prefill.pieces[0].macs, {"prompt": prompt})
    for context in range(begin + 1, begin + new):
        [piece] = [own for own in workload.decode.pieces if own.first <= context <= own.last]
        total += evaluate_polynomial(piece.macs, {"prompt": prompt, "context": context})
    return total


def check_against_generate(workload, target, lengths):
    """Compare a workload with real runs: of its own lengths, and of so many random ones."""
    model = eager_model(target)
    prompt, new = workload.prompt, workload.generate
    assert workload.macs == generated_macs(model, prompt, new, workload.batch)
    assert workload.prefill.passes + workload.decode.passes == new
    rng = random.Random(type(model).__name__)
    prompts = range(workload.prefill.pieces[0].first, prompt + 1)
    for own in rng.sample(list(itertools.product(prompts, range(2, new + 1))), lengths):
        expected = generated_macs(model, *own, workload.batch)
        assert macs_by_polynomials(workload, *own) == expected
