"""Causes of activations, elementwise work of which the native MACs have none."""

from crossflops.core.convention import Cause, Example

CAUSES = (
    Cause(
        id="act.relu",
        title="ReLU",
        page="A comparison for each element is in the total. Some tools count it, most do not, "
        "and one counts it twice (see functional.double-counted).",
        recognise="The amount is the number of elements of all ReLUs: 9 608 704 on a ResNet-50.",
        example=Example(
            code="model = nn.ReLU()\ninputs = torch.randn(1, 8, 16, 16)",
            tool="deepspeed",
            amount=2048,
        ),
        references=("sovrasov/flops-counter.pytorch#139",),
    ),
    Cause(
        id="act.piecewise-other",
        title="PReLU and its kin",
        page="One or more per element of an activation made of pieces (PReLU, LeakyReLU, ReLU6, "
        "Hardswish, clamp ...) are in the total. Which of them a tool knows is hard to guess.",
        recognise="The amount is a small multiple of the elements of these activations.",
        example=Example(
            code="model = nn.PReLU()\ninputs = torch.randn(1, 8, 16, 16)",
            tool="thop",
            amount=2048,
        ),
    ),
    Cause(
        id="act.transcendental",
        title="GELU, SiLU, Sigmoid, Tanh and their kin",
        page="One per element of an activation with an exponential in it, or its weighted cost, "
        "is in the total. Tools know some of them: GELU and SiLU, say, and not Sigmoid.",
        recognise="The amount is a multiple of the elements of these activations.",
        example=Example(
            code="model = nn.GELU()\ninputs = torch.randn(1, 8, 16, 16)",
            tool="deepspeed",
            amount=2048,
        ),
    ),
    Cause(
        id="softmax",
        title="softmax",
        page="The exponentials, the sum and the divisions of a softmax are in the total: about 3 "
        "for each element in one tool, 1 in another, 36 in onnx-tool.",
        recognise="The amount is a multiple of the elements that the softmax layers take.",
        example=Example(
            code="model = nn.Softmax(dim=-1)\ninputs = torch.randn(2, 10, 64)",
            tool="thop",
            amount=3820,
        ),
    ),
)
