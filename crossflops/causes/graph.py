"""Causes of the graph: what one side has in it and the other has not."""

from crossflops.core.convention import Cause, Example

CAUSES = (
    Cause(
        id="graph.export-decomposition",
        title="a graph that differs from the operators",
        page="One side holds an operator as a whole and the other what it was decomposed into "
        "(a 3-D linear layer as MatMul and Add, attention as products and a softmax), and their "
        "contraction work is not the same.",
        recognise="The calls that are named do not stand in the model's own code.",
    ),
    Cause(
        id="graph.converter",
        title="what a converter put in",
        page="A converter wrote one operation of the model's framework as other nodes: a Fourier "
        "transform as a product with a dense matrix, patches as a convolution with an identity "
        "kernel. The native count is that of the operation; the tool counts the nodes. "
        "docs/converters.md lists the tricks of each converter.",
        recognise="The nodes have no like in the model's own code, and `converter_macs` is not 0.",
    ),
    Cause(
        id="graph.shape-arithmetic-counted",
        title="arithmetic on sizes",
        page="The tool counts additions and multiplications of integers by which a traced model "
        "computes the sizes of its tensors: one each.",
        recognise="The amount is tiny, and stays when the input grows.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)\n"
            "    def forward(self, x):\n"
            "        return self.layer(x, x, x)[0]\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 10, 32)",
            tool="torchprofile",
            amount=4,
        ),
    ),
    Cause(
        id="graph.identity-or-constant-nodes",
        title="nodes that compute nothing",
        page="The tool counts nodes that only hand a tensor on (Identity, Concat, Flatten, "
        "Pad, Dropout), one for each element.",
        recognise="The amount is the number of elements that pass through such nodes.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x):\n"
            "        return torch.cat([x, x])\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 8, 16, 16)",
            tool="onnx-opcounter",
            amount=4096,
        ),
    ),
    Cause(
        id="graph.unknown-shape",
        title="shapes that the tool does not know",
        page="The tool derives the shapes of a graph by itself. Where it fails, the node counts "
        "nothing or a size of its own.",
        recognise="The node's input depends on values, or comes from an operator that the tool "
        "does not know.",
    ),
    Cause(
        id="graph.lost-nodes",
        title="nodes that the tool loses",
        page="The tool puts the nodes of a file into an order by the names of their tensors, and "
        "takes one that is left out for a tensor without a name: a recurrent node that leaves out "
        "its first result and an input waits for itself. It is lost with all that depends on it, "
        "and nothing is said.",
        recognise="The tool's table lacks nodes of the file; one of them has an empty name among "
        "its inputs and among its outputs.",
    ),
    Cause(
        id="graph.other-file",
        title="another file than the graph that is counted",
        page="The tool was given an ONNX file (`compare --onnx FILE`) that is not the normalized "
        "model: an exporter that folds constants, unrolls or decomposes leaves more or less "
        "contraction work in it. The amount is the native count of the file minus that of the "
        "model, module by module.",
        recognise="`crossflops count FILE` and `crossflops count TARGET` differ by it.",
    ),
    Cause(
        id="graph.function-not-inlined",
        title="a function that stays a call",
        page="The graph holds a function as one call, and the tool does not look into it. Keras "
        "compiles grouped convolutions on a CPU by XLA, and such functions are not inlined when "
        "the graph is frozen: their convolutions count nothing, and what follows has no known "
        "shape.",
        recognise="The graph has StatefulPartitionedCall where the model has a grouped "
        "convolution.",
        references=("tensorflow/tensorflow#39834",),
    ),
    Cause(
        id="graph.rebuilt",
        title="a module that was rebuilt through ONNX",
        page="The target is an ONNX file, or a model of another framework than that of the tool: "
        "the tool is given what was rebuilt from the (converted) file, a PyTorch module by "
        "onnx2torch or a TensorFlow function by rules of crossflops, in which the contraction "
        "work is not the same (a product of constants was folded on the way, say). "
        "The amount is the native count of the module minus that of the model; what the tool does "
        "is explained on the module. Of parameters it is those that the module has more of: "
        "statistics of a batch normalization that was written out, weights that were constants.",
        recognise="`crossflops count` gives one number for the model and another for the module "
        "that `onnx2torch.convert`, say, makes of its ONNX file.",
    ),
)
