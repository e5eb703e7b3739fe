"""Files of gguf's own writer count what their configs do, with the bytes that they store."""

import json
import sys
from pathlib import Path

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsError
from crossflops.ir.graph import BLOCK_TYPES, TensorSpec

WIDTH, HIDDEN, LAYERS, VOCABULARY, HEADS, KEYS, HEAD = 64, 96, 2, 128, 4, 2, 16
PLAIN = {
    "block_count": LAYERS,
    "embedding_length": WIDTH,
    "feed_forward_length": HIDDEN,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KEYS,
    "context_length": 64,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
Q, KV = (HEADS * HEAD, WIDTH), (KEYS * HEAD, WIDTH)
ENDS = {
    "token_embd.weight": (VOCABULARY, WIDTH),
    "output_norm.weight": (WIDTH,),
    "output.weight": (VOCABULARY, WIDTH),
}
ATTENTION = {
    "attn_norm.weight": (WIDTH,),
    "attn_q.weight": Q,
    "attn_k.weight": KV,
    "attn_v.weight": KV,
    "attn_output.weight": Q[::-1],
    "ffn_norm.weight": (WIDTH,),
}
GATED = {
    "ffn_gate.weight": (HIDDEN, WIDTH),
    "ffn_up.weight": (HIDDEN, WIDTH),
    "ffn_down.weight": (WIDTH, HIDDEN),
}
EXPERTS = {
    "ffn_gate_inp.weight": (4, WIDTH),
    "ffn_gate_exps.weight": (4, 32, WIDTH),
    "ffn_up_exps.weight": (4, 32, WIDTH),
    "ffn_down_exps.weight": (4, WIDTH, 32),
}
NORMS = {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
BIASES = {"attn_q.bias": Q[:1], "attn_k.bias": KV[:1], "attn_v.bias": KV[:1]}


def tensors_of(*blocks: dict, ends: dict = ENDS) -> dict[str, tuple[int, ...]]:
    """The tensors of a model with these in each block."""
    joined = {name: shape for block in blocks for name, shape in block.items()}
    blocks_of = {
        f"blk.{at}.{name}": shape for at in range(LAYERS) for name, shape in joined.items()
    }
    return {**ends, **blocks_of}


def write_file(path: Path, architecture: str, metadata: dict, tensors: dict, kind="Q8_0") -> Path:
    """Write a file by gguf: matrices in one type, vectors as float32, all of them zeros."""
    gguf = pytest.importorskip("gguf")
    import numpy as np

    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_float32
        add(f"{architecture}.{key}", value)
    writer.add_token_list([b"a", b"b"])
    chosen = gguf.GGMLQuantizationType[kind]
    for name, shape in tensors.items():
        data = np.zeros(shape, np.float32)
        if len(shape) > 1 and kind != "F32":
            writer.add_tensor(name, gguf.quants.quantize(data, chosen), raw_dtype=chosen)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


HEAD_SIZE = {"attention.key_length": HEAD, "attention.value_length": HEAD}
# Architecture -> metadata, tensors, and the matrix elements of one block that a token meets.
SQUARE = WIDTH * (2 * HEADS * HEAD + 2 * KEYS * HEAD)
FILES = {
    "llama": (
        {**PLAIN, "rope.dimension_count": HEAD},
        tensors_of(ATTENTION, GATED),
        SQUARE + 3 * WIDTH * HIDDEN,
    ),
    "qwen2": (PLAIN, tensors_of(ATTENTION, BIASES, GATED), SQUARE + 3 * WIDTH * HIDDEN),
    "qwen3moe": (
        {
            **PLAIN,
            **HEAD_SIZE,
            "expert_count": 4,
            "expert_used_count": 2,
            "expert_feed_forward_length": 32,
        },
        tensors_of(ATTENTION, NORMS, EXPERTS),
        SQUARE + 4 * WIDTH + 2 * 3 * WIDTH * 32,
    ),
    "gemma2": (
        {**PLAIN, **HEAD_SIZE, "attention.sliding_window": 32},
        tensors_of(
            ATTENTION,
            GATED,
            {"post_attention_norm.weight": (WIDTH,), "post_ffw_norm.weight": (WIDTH,)},
            ends={name: shape for name, shape in ENDS.items() if name != "output.weight"},
        ),
        SQUARE + 3 * WIDTH * HIDDEN,
    ),
    "gpt2": (
        {key: value for key, value in PLAIN.items() if "kv" not in key},
        tensors_of(
            {
                **{f"{name}.{kind}": (WIDTH,) for name in ("attn_norm", "ffn_norm")
                   for kind in ("weight", "bias")},
                "attn_qkv.weight": (3 * WIDTH, WIDTH),
                "attn_qkv.bias": (3 * WIDTH,),
                "attn_output.weight": (WIDTH, WIDTH),
                "attn_output.bias": (WIDTH,),
                "ffn_up.weight": (HIDDEN, WIDTH),
                "ffn_up.bias": (HIDDEN,),
                "ffn_down.weight": (WIDTH, HIDDEN),
                "ffn_down.bias": (WIDTH,),
            },
            ends={**ENDS, "output_norm.bias": (WIDTH,), "position_embd.weight": (64, WIDTH)},
        ),
        4 * WIDTH * WIDTH + 2 * WIDTH * HIDDEN,
    ),
    "phi3": (
        {**PLAIN, "rope.dimension_count": HEAD},
        tensors_of(
            {
                "attn_norm.weight": (WIDTH,),
                "attn_qkv.weight": ((HEADS + 2 * KEYS) * HEAD, WIDTH),
                "attn_output.weight": Q[::-1],
                "ffn_norm.weight": (WIDTH,),
                "ffn_up.weight": (2 * HIDDEN, WIDTH),
                "ffn_down.weight": (WIDTH, HIDDEN),
            }
        ),
        SQUARE + 3 * WIDTH * HIDDEN,
    ),
}  # fmt: skip
TOKENS = 4


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
@pytest.mark.parametrize("architecture", FILES)
def test_files_count_by_hand(architecture: str, tmp_path: Path) -> None:
    """Each matrix once for each token, and two products of the attention; bytes of the table."""
    metadata, tensors, block = FILES[architecture]
    path = write_file(tmp_path / "model.gguf", architecture, metadata, tensors)
    report = crossflops.count(str(path), f"input_ids=1x{TOKENS}:int64")
    attention = 2 * HEADS * HEAD * TOKENS * TOKENS
    ends = WIDTH * VOCABULARY * TOKENS
    assert report.totals.macs == LAYERS * (block * TOKENS + attention) + ends
    sizes = {"q8_0": 0, "float32": 0}
    for shape in tensors.values():
        elements = TensorSpec("", "float32", shape).numel
        # a block of 32 numbers is 32 bytes and a scale of 2
        sizes["q8_0" if len(shape) > 1 else "float32"] += (
            elements * 34 // 32 if len(shape) > 1 else elements * 4
        )
    assert report.memory.param_bytes_by_type == sizes
    assert not report.uncounted


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
def test_decoding_reads_the_bytes_of_the_file(tmp_path: Path) -> None:
    """The weights of a step are smaller than those of the float16 config by what each stores.

    A step reads one row of the table. Vectors are float32 in the file, and float16 in the config.
    """
    metadata, tensors, _ = FILES["llama"]
    path = write_file(tmp_path / "model.gguf", "llama", metadata, tensors)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "float16",
        "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "vocab_size": VOCABULARY,
        "max_position_embeddings": 64, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    targets = {"file": str(path), "config": str(tmp_path)}  # a folder, as hf:FOLDER
    reports = {
        name: crossflops.count(target, prompt=4, generate=3) for name, target in targets.items()
    }
    steps = {name: report.workload.decode for name, report in reports.items()}
    assert steps["file"].amounts.macs == steps["config"].amounts.macs
    matrices = sum(
        TensorSpec("", "float32", shape).numel for shape in tensors.values() if len(shape) > 1
    )
    read = matrices - WIDTH * VOCABULARY + WIDTH
    vectors = (2 * LAYERS + 1) * WIDTH
    saved = read * 2 - read * 34 // 32 - vectors * (4 - 2)
    assert steps["config"].weight_bytes - steps["file"].weight_bytes == saved


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")
@pytest.mark.parametrize(
    ("architecture", "metadata", "tensors", "message"),
    [
        ("mamba", PLAIN, ENDS, "has the architecture 'mamba', which crossflops does not know"),
        ("llama", {**PLAIN, "feed_forward_length": 32}, {}, "as 96x64, but its metadata describe"),
        ("llama", {**PLAIN, "block_count": 1}, {}, "tensors that are not in the model"),
        ("llama", {**PLAIN, "block_count": 3}, {}, "has no tensor blk.2.attn_q.weight"),
        (
            "llama",
            {**PLAIN, "rope.dimension_count": 8},
            {},
            "embeddings of 8 of the 16",
        ),
        (
            "llama",
            {**PLAIN, "attention.value_length": 8},
            {},
            "8 elements for each value",
        ),
    ],
)
def test_wrong_metadata_are_errors(
    architecture: str, metadata: dict, tensors: dict, message: str, tmp_path: Path
) -> None:
    """A mapping that does not fit the tensors is an error, and never a count."""
    path = write_file(
        tmp_path / "wrong.gguf", architecture, metadata, tensors or FILES["llama"][1], "F32"
    )
    with pytest.raises(CrossflopsError, match=message):
        crossflops.count(str(path), "input_ids=1x2:int64")


@pytest.mark.tools
def test_block_types_are_those_of_gguf() -> None:
    """The bytes of a block, by the table of the package gguf."""
    gguf = pytest.importorskip("gguf")
    named = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    for name, size in BLOCK_TYPES.items():
        assert named.get(name, size) == size
    plain = {"f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64"}
    assert named.keys() - BLOCK_TYPES.keys() <= plain


@pytest.mark.parametrize(
    ("name", "content", "package"),
    [("m.gguf", b"GGUF", "gguf"), ("m.tflite", b"\0\0\0\0TFL3", "tflite")],
)
def test_a_missing_reader_is_named_with_its_extra(
    name: str, content: bytes, package: str, tmp_path, monkeypatch, capsys
) -> None:
    """One line of what is missing, and one of what to install; exit status 2."""
    (tmp_path / name).write_bytes(content)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["count", str(tmp_path / name)]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {package} is needed to read")
    assert "pip install" in hint
    assert package in hint


@pytest.mark.parametrize("name", ["m.gguf", "m.tflite"])
def test_a_missing_file_is_named(name: str, tmp_path, capsys) -> None:
    """The path, and what to give."""
    assert main(["count", str(tmp_path / name)]) == 2
    assert f"{name} does not exist" in capsys.readouterr().err
