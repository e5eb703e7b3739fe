"""Modules of Flax NNX, each alone; and functions of jax.numpy and jax.nn."""

from typing import Any

from crossflops.testing.jax.probe import Probe, function, module

_IMAGE, _ROWS, _SQUARE = "1x16x16x8", "2x10x64", "4x16"


def _attention(nnx: Any, rngs: Any) -> Any:
    return nnx.MultiHeadAttention(4, 64, decode=False, rngs=rngs)


def _recurrent(cell: str) -> Any:
    return module(lambda nnx, rngs: nnx.RNN(getattr(nnx, cell)(16, 32, rngs=rngs)))


def _activation(name: str, **options: Any) -> Probe:
    body = function(lambda jax, x: getattr(jax.nn, name)(x, **options))
    return Probe("_".join(("nn", name, *options)), body, (_SQUARE,))


def _numpy(name: str, inputs: tuple[str, ...] = (_SQUARE,)) -> Probe:
    return Probe(f"numpy_{name}", function(lambda jax, *x: getattr(jax.numpy, name)(*x)), inputs)


def _linalg(name: str, inputs: tuple[str, ...] = ("5x5",)) -> Probe:
    def body(jax: Any, *x: Any) -> Any:
        return getattr(jax.numpy.linalg, name)(*x)

    return Probe(f"linalg_{name}", function(body), inputs)


MODULES = (
    Probe("module_conv", module(lambda nnx, rngs: nnx.Conv(8, 4, (3, 3), rngs=rngs)), (_IMAGE,),
          2 * 46 * 46 * 32 + 1024),
    Probe("module_conv_transposed",
          module(lambda nnx, rngs: nnx.ConvTranspose(8, 4, (3, 3), strides=2, rngs=rngs)),
          (_IMAGE,), 2 * 47 * 47 * 32 + 4096),
    Probe("module_linear", module(lambda nnx, rngs: nnx.Linear(64, 32, rngs=rngs)), (_ROWS,),
          20 * (2 * 64 * 32 + 32)),
    # x - mean, rsqrt(var + epsilon) x scale, their product, and the bias
    Probe("module_batch_norm", module(lambda nnx, rngs: nnx.BatchNorm(8, rngs=rngs)), (_IMAGE,),
          3 * 2048 + 2 * 8),
    Probe("module_layer_norm", module(lambda nnx, rngs: nnx.LayerNorm(64, rngs=rngs)), (_ROWS,)),
    Probe("module_group_norm",
          module(lambda nnx, rngs: nnx.GroupNorm(8, num_groups=4, rngs=rngs)), (_IMAGE,)),
    Probe("module_instance_norm", module(lambda nnx, rngs: nnx.InstanceNorm(8, rngs=rngs)),
          (_IMAGE,)),
    Probe("module_rms_norm", module(lambda nnx, rngs: nnx.RMSNorm(64, rngs=rngs)), (_ROWS,)),
    Probe("module_embed", module(lambda nnx, rngs: nnx.Embed(100, 16, rngs=rngs)),
          ("2x10:int32",)),
    Probe("module_attention", module(_attention), (_ROWS,)),
    Probe("module_dropout", module(lambda nnx, rngs: nnx.Dropout(0.5, rngs=rngs)), (_ROWS,), 0),
    Probe("module_lstm", _recurrent("LSTMCell"), ("2x5x16",)),
    Probe("module_gru", _recurrent("GRUCell"), ("2x5x16",)),
    Probe("module_bfloat16",
          module(lambda nnx, rngs: nnx.Linear(64, 32, dtype="bfloat16", rngs=rngs)), (_ROWS,)),
)  # fmt: skip
ACTIVATIONS = (
    *map(_activation, ("relu", "relu6", "leaky_relu", "hard_silu", "sigmoid", "silu", "elu")),
    *map(_activation, ("softplus", "softmax", "log_softmax", "logsumexp", "standardize")),
    _activation("gelu"),
    _activation("gelu", approximate=False),
    Probe("nn_gelu_bfloat16", function(lambda jax, x: jax.nn.gelu(x)), ("4x16:bfloat16",)),
    Probe("nn_one_hot", function(lambda jax, x: jax.nn.one_hot(x, 10)), ("4:int32",)),
)
ARRAYS = (
    *map(_numpy, ("cumsum", "argmax", "sort", "mean", "var", "median", "prod", "any", "flip")),
    _numpy("take", ("100x16", "2:int32")),
    _numpy("searchsorted", ("16", "5")),
    _linalg("cholesky"),
    _linalg("inv"),
    _linalg("solve", ("5x5", "5x3")),
    Probe("fft", function(lambda jax, x: jax.numpy.fft.rfft(x)), (_SQUARE,), 8 * 64 * 4),
    Probe("top_k", function(lambda jax, x: jax.lax.top_k(x, 3)), (_SQUARE,), 0),
    Probe("near_top_k", function(lambda jax, x: jax.lax.approx_max_k(x, 3)), ("4x160",),
          640 * 10),
    Probe("scatter", function(lambda jax, x, i, y: x.at[i].add(y)),
          ("10x4", "3:int32", "3x4"), 3 + 3 + 3 + 12),
    Probe("rows", function(lambda jax, x, i: x[i]), ("100x16", "2x10:int32"), 60),
    Probe("whole_numbers", function(lambda jax, x: x % 7 // 2), ("16:int32",)),
    Probe("random", function(lambda jax, x: jax.random.normal(jax.random.key(0), (3, 5)) + x),
          ("3x5",)),
    Probe("again", function(lambda jax, x: jax.numpy.where(x > 1, x * 2, 0) / x.sum() + x * 2),
          (_SQUARE,)),
    Probe("once", function(lambda jax, x: jax.numpy.tanh(x * 3) + x * 3), (_SQUARE,), 3 * 64),
    Probe("nothing", function(lambda jax, x: x), (_SQUARE,), 0),
)  # fmt: skip
PROBES = (*MODULES, *ACTIVATIONS, *ARRAYS)


ONE_PRODUCT = Probe("one_product", function(lambda jax, x, w: x @ w), (_SQUARE, "16x8"), 1024)
THREE_PRODUCTS = Probe(
    "three_products", function(lambda jax, x, w: (x.T @ x).sum() + x @ w @ w.T), (_SQUARE, "16x8")
)
