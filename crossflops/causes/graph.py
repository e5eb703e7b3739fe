"""Causes of the graph: what one side has in it and the other has not; control flow; XLA."""

from crossflops.ir.reconciliation import Cause, Example

_GRAPH_CAUSES = (
    Cause(
        id="graph.export-decomposition",
        title="a graph that differs from the operators",
        page="One side holds an operator as a whole and the other what it was decomposed into "
        "(a 3-D linear layer as MatMul and Add, attention as products and a softmax), and their "
        "contraction work is not the same. Both have work for the operator; what one of them has "
        "alone, and all gradients, are `graph.one-side-alone`.",
        recognise="The calls that are named do not stand in the model's own code.",
    ),
    Cause(
        id="graph.one-side-alone",
        title="work that one side alone has",
        page="A product stands in the graph that the tool counts and not in the native count, or "
        "in that and not in the tool's: gradients that only one of them makes, or makes of other "
        "products. Nothing shows that it is the same work in another form. One of the two misses "
        "something, or has what nobody asked for: look at the calls before you take the total.",
        recognise="The calls that are named have work on one side, and none or another amount on "
        "the other.",
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


# Causes of control flow: what runs more than once, or not at all, or for nothing.

_CONTROL_CAUSES = (
    Cause(
        id="control.dead-code",
        title="computed, and never used",
        page="The model computes something that no output depends on. Tools that watch the model "
        "run count it, and tools that read the nodes of a file; tools that trace a graph, and the "
        "native count, do not. A trace keeps what is written into a buffer, a parameter or an "
        "input (a running mean, a cache).",
        recognise="Deleting the line that computes it changes the tool's number and no output.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Linear(64, 32, bias=False)\n"
            "    def forward(self, x):\n"
            "        self.layer(x)\n"
            "        return x + 1\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=8192,
        ),
    ),
    Cause(
        id="control.loop-body-once",
        title="a loop's body, counted once or not",
        page="The graph holds a loop as one node with a body. The native count multiplies the "
        "body by its trips; the tool counts it once, or does not look into it.",
        recognise="The tool's number does not depend on the number of steps.",
    ),
    Cause(
        id="control.one-device",
        title="the program of one device, not of all",
        page="A shard_map of JAX runs its body on each device of a mesh, on a part of the data. "
        "The native count is the work of all devices together; XLA's analysis is of the program "
        "that one of them runs.",
        recognise="The tool's number is the native count divided by the number of devices.",
    ),
    Cause(
        id="control.branch",
        title="branches that are not taken",
        page="The graph holds both branches of a condition. Tools count the larger, the one that "
        "ran, both, or none.",
        recognise="The difference is the work of one branch.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Linear(8, 8, bias=False)\n"
            "    def forward(self, x):\n"
            "        return torch.cond(x.sum() > 0, self.layer, torch.sin, (x,))\n"
            "model = Model()\n"
            "inputs = torch.randn(2, 8)",
            tool="onnx-opcounter",
            amount=-128,
        ),
    ),
)


# Causes of the order of a tensor's axes.

_LAYOUT_CAUSES = (
    Cause(
        id="layout.nchw-unsupported",
        title="channels first, counted as nothing",
        page="The tool has its rule for images with the channels last alone. Pools and transposed "
        "convolutions of images with the channels first count nothing, and no warning says so.",
        recognise="The number grows when the same layer is given data_format='channels_last'.",
    ),
)


# Causes of scope: which mode, which passes and how many examples a number stands for.

_SCOPE_CAUSES = (
    Cause(
        id="scope.mode-forced-eval",
        title="evaluation mode, whatever was asked",
        page="The tool puts the model into evaluation mode before it counts. A model that takes "
        "another path in training (auxiliary classifiers, for example) does other work there.",
        recognise="The difference vanishes without --train-mode.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Linear(64, 32, bias=False)\n"
            "    def forward(self, x):\n"
            "        return self.layer(x) if self.training else x + 1\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=-8192,
            options=("--train-mode",),
        ),
    ),
    Cause(
        id="scope.batch-divided",
        title="divided by the batch",
        page="The tool divides by the batch, all or a part of what it counts, so that the number "
        "is for one example; the native count is for the whole input.",
        recognise="The tool's number does not grow, or not in proportion, with the batch.",
        example=Example(
            code="model = nn.Sequential(nn.Linear(64, 32, bias=False))\n"
            "inputs = torch.randn(4, 64)",
            tool="ptflops-pytorch",
            amount=-6144,
        ),
    ),
    Cause(
        id="scope.backward",
        title="gradients",
        page="The tool counts the work of gradients beside their products: of activations, norms "
        "and pools, sums for biases, and several gradients of one tensor added up. Where a model "
        "computes gradients itself, the native MACs are those of the operators that can be "
        "converted, and these products are in the amount, too.",
        recognise="The graph has operators whose names end in Grad or Backprop; in a program of "
        "JAX they are in scopes such as transpose(jvp(...)).",
    ),
)


# Causes of what XLA's compilation does to a program, and with it to what is counted.

_BOTH = "The tool counts the program that is compiled, not the one that is given to the compiler. "
_SEE = "Print both: jax.jit(f).lower(*args).as_text() and the same after .compile()."

_XLA_CAUSES = (
    Cause(
        id="xla.computed-again",
        title="work that fusion repeats",
        page=f"{_BOTH}Where several fused loops need one value, each computes it anew instead of "
        "reading it: a normalization whose result goes two ways counts twice.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.computed-once",
        title="equal work that is merged",
        page=f"{_BOTH}Instructions that compute the same value are merged into one.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-arithmetic",
        title="arithmetic that is simplified",
        page=f"{_BOTH}A division by a constant becomes a multiplication, a maximum with minus "
        "infinity goes, what is known beforehand is folded.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-reduction",
        title="sums that are cut differently",
        page=f"{_BOTH}A sum over a long axis is cut into windows, a running sum into blocks, the "
        "gradient of a pool into a search and a scatter.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-contraction",
        title="products and convolutions that are rewritten",
        page=f"{_BOTH}A convolution over groups may become one over all channels with zeros in "
        "between, a convolution a product, or the other way round.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-algorithm",
        title="sorts and decompositions that are rewritten",
        page=f"{_BOTH}A sort, a Fourier transform or a decomposition is replaced by another one.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.type-conversion",
        title="conversions of types",
        page=f"{_BOTH}What a processor cannot compute in bfloat16 is computed in float32, with a "
        "conversion before and after, and each counts one per element.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.library-call",
        title="calls of a library that come or go",
        page=f"{_BOTH}Some work is handed to a library, and the analysis counts -1 for the call, "
        "which stands for unknown and is added up all the same.",
        recognise=_SEE,
    ),
)


CAUSES = (*_GRAPH_CAUSES, *_CONTROL_CAUSES, *_LAYOUT_CAUSES, *_SCOPE_CAUSES, *_XLA_CAUSES)
