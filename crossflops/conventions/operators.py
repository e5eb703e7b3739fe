"""Which undecomposed PyTorch operators contract, and the formula of each.

Shared by every convention that stands on the operator storey: what a tool leaves out it says in
clauses before these.
"""

from crossflops.core.convention import Clause, Match

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


def contraction(
    tool: str, formula: str, reference: str, cause: str = "", targets: tuple[str, ...] = ()
) -> Clause:
    """A clause that counts one family of operators at its true MACs.

    `cause` names what is meant should the formula and the native count ever differ.
    """
    return Clause(
        id=f"{tool}.{formula}",
        cause=cause or "graph.export-decomposition",
        storey="operator",
        match=Match(targets=targets or CONTRACTIONS[formula]),
        kind="core",
        formula=formula,
        reference=reference,
    )


def complex_products(tool: str, reference: str, formula: str = "matmul") -> Clause:
    """A clause for matrix products of complex numbers, which count like those of real ones."""
    return Clause(
        id=f"{tool}.complex",
        cause="contraction.complex",
        storey="operator",
        match=Match(targets=CONTRACTIONS["matmul"], dtypes=("complex64", "complex128")),
        kind="core",
        formula=formula,
        reference=reference,
    )
