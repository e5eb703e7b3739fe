"""Causes of a contraction that is seen and counted, by another formula than its true MACs."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="conv.transpose-output-size",
        title="transposed convolutions by output size",
        page="A transposed convolution does Ci x Co/g x K multiplications per *input* position. "
        "thop uses the formula of the forward convolution, per output position, and with it a "
        "factor of about stride^2 too many.",
        references=("Lyken17/pytorch-OpCounter#20", "Lyken17/pytorch-OpCounter#93"),
    ),
    Cause(
        id="conv.unbatched-axis",
        title="channels read from the wrong axis",
        page="thop 0.1.1 takes the second axis of the input for the channels. An unbatched input "
        "(C, H, W) has its height there.",
        references=("Lyken17/pytorch-OpCounter#212",),
    ),
    Cause(
        id="matmul.leading-dims-lost",
        title="leading axes of a linear layer",
        page="A linear layer applied to more than two axes does its product once per row of all "
        "leading axes. A tool that knows only the batch axis counts too few.",
        references=("TylerYep/torchinfo#77",),
    ),
    Cause(
        id="matmul.broadcast-batch-lost",
        title="broadcast batch axes of a product",
        page="numpy.matmul broadcasts batch axes. fvcore multiplies the elements of the first "
        "operand by the last axis of the second, so axes that only the second one has are lost: "
        "(6, 8) @ (2, 4, 8, 10) gives 480 for 3840.",
    ),
    Cause(
        id="einsum.path-estimate",
        title="einsum estimated from a printed path",
        page="fvcore knows two equations. For all others it halves the cost that "
        "numpy.einsum_path prints, which has four digits and counts a product without a sum as "
        "work of a contraction.",
    ),
    Cause(
        id="rnn.fused",
        title="recurrent layers",
        page="A fused recurrent operator is not taken apart: fvcore has no handle for it, "
        "FlopCounterMode no formula for the CPU kernel of an LSTM (GRU and RNN are dispatched as "
        "matrix products, and counted). thop has a rule of its own, which knows no projections.",
        references=("facebookresearch/fvcore#98", "facebookresearch/fvcore#49"),
    ),
    Cause(
        id="contraction.complex",
        title="products of complex numbers",
        page="A product of complex numbers is four products of real ones, and so the native MACs "
        "count it. The tool multiplies extents, whatever the type, and counts one.",
    ),
    Cause(
        id="graph.export-decomposition",
        title="a graph that differs from the operators",
        page="The exported graph does other contraction work than the operators it was made from. "
        "A difference here is a defect of the export or of the native count: please report it.",
    ),
)
