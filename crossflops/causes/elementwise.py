"""Causes of elementwise work that is no layer: additions and products of tensors."""

from crossflops.core.convention import Cause, Example

CAUSES = (
    Cause(
        id="elementwise.native",
        title="work outside of contractions",
        page="Additions, multiplications, comparisons and functions that belong to no sum of "
        "products. The native MACs have none of them; the native FLOPs count each once.",
        recognise="The model has layers, and none of them is a convolution or a product.",
        example=Example(
            code="model = nn.Sigmoid()\ninputs = torch.randn(1, 8, 16, 16)",
            tool="elementwise-1",
            amount=2048,
        ),
    ),
    Cause(
        id="elementwise.add-function",
        title="additions and products of tensors",
        page="One for each result of an addition or a multiplication of tensors is in the total: "
        "the residual connections of a ResNet or a transformer. A tool that replaces functions "
        "sees torch.add(x, y) and not x + y; one that watches operators sees both.",
        recognise="The amount is the number of elements of the sums: 5 519 360 on a ResNet-50.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x):\n"
            "        return x + x\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 8, 16, 16)",
            tool="torch-profiler",
            amount=2048,
        ),
        references=("deepspeedai/DeepSpeed#3087", "pytorch/pytorch#82951"),
    ),
    Cause(
        id="elementwise.broadcast-shape",
        title="the shape of a broadcast result",
        page="Where the operands of an addition or a multiplication have different shapes, the "
        "result has as many elements as both together span. The tool takes those of one operand, "
        "or aligns the shapes from the left.",
        recognise="Exchanging the operands changes the tool's number.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x, y):\n"
            "        return torch.add(x, y)\n"
            "model = Model()\n"
            "inputs = torch.randn(2, 3, 4), torch.randn(4)",
            tool="ptflops-pytorch",
            amount=24,
        ),
    ),
    Cause(
        id="elementwise.type-conversion",
        title="conversions of types",
        page="Every element that is converted from one type to another counts one. The native "
        "count sees no arithmetic in it.",
        recognise="The amount grows when the model is run in bfloat16 or in integers.",
    ),
)
