"""One step of a decoder of the Llama family, as an ONNX file without its weights."""

import msgspec
import onnx
from onnx import TensorProto, helper


class Decoder(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a decoder. A step has one new token for each of `batch`, after `past`."""

    layers: int = 2
    width: int = 64
    hidden: int = 160
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    vocab: int = 300
    batch: int = 3
    past: int = 15
    whole: bool = False  # attention as one operator
    dtype: int = TensorProto.FLOAT16

    @property
    def matmul_params(self) -> int:
        """Weights of matrix products: queries, keys, values, output, three of the MLP, head."""
        attention = 2 * self.width * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.width * self.hidden) + self.width * self.vocab


LLAMA_8B = Decoder(
    layers=32, width=4096, hidden=14336, heads=32, kv_heads=8, head_dim=128, vocab=128256,
    batch=8, past=2047,
)  # fmt: skip


class _Building:
    def __init__(self, sizes: Decoder) -> None:
        self.sizes = sizes
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def weight(self, name: str, *dims: int) -> str:
        """Stored in a file that is not there: nobody needs the values."""
        tensor = TensorProto(name=name, data_type=self.sizes.dtype, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="absent.data")
        self.stored.append(tensor)
        return name

    def ints(self, name: str, *values: int) -> str:
        self.stored.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def node(self, path: str, op: str, *inputs: str, outputs: int = 1, **attrs) -> str:
        name = f"{path}/{op}"
        made = [f"{name}_out{i or ''}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, name=name, **attrs))
        return made[0]

    def linear(self, path: str, x: str, wide: int, high: int) -> str:
        weight = self.weight(path.strip("/").replace("/", ".") + ".weight", wide, high)
        return self.node(path, "MatMul", x, weight)

    def norm(self, path: str, x: str) -> str:
        weight = self.weight(path.strip("/").replace("/", ".") + ".weight", self.sizes.width)
        return self.node(path, "RMSNormalization", x, weight, axis=-1)

    def cache(self, name: str, length: int, role: list) -> str:
        dims = [self.sizes.batch, self.sizes.kv_heads, length, self.sizes.head_dim]
        role.append(helper.make_tensor_value_info(name, self.sizes.dtype, dims))
        return name

    def split(self, path: str, x: str, heads: int) -> str:
        shape = self.ints(f"{path}/shape", self.sizes.batch, 1, heads, self.sizes.head_dim)
        apart = self.node(path, "Reshape", x, shape)
        return self.node(path, "Transpose", apart, perm=[0, 2, 1, 3])

    def attention(self, path: str, layer: int, q: str, k: str, v: str) -> str:
        own = self.sizes
        pasts = [
            self.cache(f"past.{layer}.{letter}", own.past, self.inputs) for letter in ("k", "v")
        ]
        names = [f"present.{layer}.{letter}" for letter in ("k", "v")]
        for name in names:
            self.cache(name, own.past + 1, self.outputs)
        if own.whole:
            made = [f"{path}/y", *names]
            inputs = [q, k, v, "", *pasts]
            self.nodes.append(
                helper.make_node("Attention", inputs, made, name=f"{path}/Attention")
            )
            return made[0]
        full = []
        for past, new, name, letter in zip(pasts, (k, v), names, "kv", strict=True):
            self.nodes.append(
                helper.make_node("Concat", [past, new], [name], name=f"{path}/{name}", axis=2)
            )
            full.append(self._repeated(f"{path}/repeated_{letter}", name))
        turned = self.node(f"{path}/scores", "Transpose", full[0], perm=[0, 1, 3, 2])
        scores = self.node(f"{path}/scores", "MatMul", q, turned)
        return self.node(f"{path}/values", "MatMul", self.node(path, "Softmax", scores), full[1])

    def _repeated(self, path: str, x: str) -> str:
        """Each key for all queries that share it."""
        own = self.sizes
        length, group = own.past + 1, own.heads // own.kv_heads
        wide = self.ints(f"{path}/wide", own.batch, own.kv_heads, group, length, own.head_dim)
        flat = self.ints(f"{path}/flat", own.batch, own.heads, length, own.head_dim)
        apart = self.node(path, "Unsqueeze", x, self.ints(f"{path}/axis", 2))
        return self.node(path, "Reshape", self.node(path, "Expand", apart, wide), flat)


def decoder(sizes: Decoder) -> onnx.ModelProto:
    """The graph of one step: embedding, layers with a cache of keys and values each, head."""
    make = _Building(sizes)
    ids = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [sizes.batch, 1])]
    table = make.weight("model.embed_tokens.weight", sizes.vocab, sizes.width)
    x = make.node("/model/embed_tokens", "Gather", table, "input_ids")
    for layer in range(sizes.layers):
        x = _layer(make, f"/model/layers.{layer}", layer, x)
    x = make.linear("/lm_head", make.norm("/model/norm", x), sizes.width, sizes.vocab)
    logits = helper.make_tensor_value_info(x, sizes.dtype, [sizes.batch, 1, sizes.vocab])
    graph = helper.make_graph(
        make.nodes, "decoder", ids + make.inputs, [logits, *make.outputs], make.stored
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def _layer(make: _Building, path: str, layer: int, x: str) -> str:
    own, attn, mlp = make.sizes, f"{path}/self_attn", f"{path}/mlp"
    y = make.norm(f"{path}/input_layernorm", x)
    wide, narrow = own.heads * own.head_dim, own.kv_heads * own.head_dim
    q, k, v = (
        make.split(f"{attn}/{letter}", make.linear(f"{attn}/{letter}_proj", y, own.width, n), h)
        for letter, n, h in (
            ("q", wide, own.heads), ("k", narrow, own.kv_heads), ("v", narrow, own.kv_heads),
        )
    )  # fmt: skip
    y = make.attention(attn, layer, q, k, v)
    y = make.node(f"{attn}/merge", "Transpose", y, perm=[0, 2, 1, 3])
    y = make.node(attn, "Reshape", y, make.ints(f"{attn}/merged", own.batch, 1, wide))
    x = make.node(f"{attn}/add", "Add", x, make.linear(f"{attn}/o_proj", y, wide, own.width))
    y = make.norm(f"{path}/post_attention_layernorm", x)
    gate = make.node(mlp, "Sigmoid", make.linear(f"{mlp}/gate_proj", y, own.width, own.hidden))
    up = make.linear(f"{mlp}/up_proj", y, own.width, own.hidden)
    down = make.linear(f"{mlp}/down_proj", make.node(mlp, "Mul", gate, up), own.hidden, own.width)
    return make.node(f"{mlp}/add", "Add", x, down)
