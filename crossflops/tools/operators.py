"""Which undecomposed PyTorch operators contract, by the formula of their MACs."""

CONTRACTIONS: dict[str, tuple[str, ...]] = {
    "convolution": (
        "aten.conv1d.*", "aten.conv2d.*", "aten.conv3d.*", "aten.convolution.default",
        "aten._convolution.*", "aten.conv_transpose1d.*", "aten.conv_transpose2d.*",
        "aten.conv_transpose3d.*",
    ),
    "linear": ("aten.linear.default",),
    "matmul": (
        "aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.addmm.default",
        "aten.baddbmm.default", "aten.linalg_matmul.default",
    ),
    "tensordot": ("aten.tensordot.default", "aten.inner.default"),
    "einsum": ("aten.einsum.default",),
    "scaled_dot_product_attention": ("aten.scaled_dot_product_attention.default",),
    "recurrent": (
        "aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input",
    ),
    "recurrent_cell": (
        "aten.lstm_cell.default", "aten.gru_cell.default", "aten.rnn_tanh_cell.default",
        "aten.rnn_relu_cell.default",
    ),
}  # fmt: skip


VMAP = "torch.vmap"
HOOKS, PRE_HOOK = "torch.nn.Module.*hook", "torch.nn.Module.pre_hook"
