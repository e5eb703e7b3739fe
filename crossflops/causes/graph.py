"""Causes of the graph: what one side has in it and the other has not; control flow; XLA."""

from crossflops.ir.reconciliation import Cause, Example

_GRAPH_CAUSES = (
    Cause(
        id="graph.export-decomposition",
        title="a graph that differs from the operators",
        page="One side has an operator as a whole, and the other side has its decomposition (a "
        "3-D linear layer as MatMul and Add, attention as products and a softmax). The work of "
        "their contractions differs. Both sides have work for the operator; work that only one "
        "side has, and all gradients, are `graph.one-side-alone`.",
        recognise="The listed calls are not in the code of the model.",
    ),
    Cause(
        id="graph.one-side-alone",
        title="work that only one side has",
        page="A product is in the graph that the tool counts and not in the native count, or the "
        "other way round. Often it is a gradient that only one side computes, or computes by "
        "other products. Nothing shows that both sides have the same work in another form. One "
        "side misses work, or has additional work: look at the calls before you use the total.",
        recognise="The listed calls have work on one side, and no work or another amount on the "
        "other side.",
    ),
    Cause(
        id="graph.converter",
        title="nodes that a converter added",
        page="A converter wrote one operation of the model's framework as other nodes: a Fourier "
        "transform as a product with a dense matrix, patches as a convolution with an identity "
        "kernel. The native count is that of the operation; the tool counts the nodes. "
        "docs/converters.md lists such replacements of each converter.",
        recognise="The nodes have no counterpart in the code of the model, and `converter_macs` "
        "is not 0.",
    ),
    Cause(
        id="graph.shape-arithmetic-counted",
        title="arithmetic on sizes",
        page="A traced model computes the sizes of its tensors by additions and multiplications "
        "of integers. The tool counts 1 for each of them.",
        recognise="The amount is tiny, and does not change when the input grows.",
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
        page="The tool counts nodes that only pass a tensor on (Identity, Concat, Flatten, Pad, "
        "Dropout), 1 for each element.",
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
        page="The tool infers the shapes of a graph itself. If it cannot infer a shape, it "
        "counts nothing for the node, or uses another size.",
        recognise="The node's input depends on values, or comes from an operator that the tool "
        "does not know.",
    ),
    Cause(
        id="graph.lost-nodes",
        title="nodes that the tool loses",
        page="The tool sorts the nodes of a file by the names of their tensors, and treats an "
        "omitted tensor as a tensor with an empty name. A recurrent node that omits its first "
        "result and an input then depends on itself. The tool drops this node and all nodes that "
        "depend on it, without a message.",
        recognise="Nodes of the file are missing in the table of the tool; one of them has an "
        "empty name both in its inputs and in its outputs.",
    ),
    Cause(
        id="graph.other-file",
        title="a file that differs from the counted graph",
        page="The tool was given an ONNX file (`compare --onnx FILE`) that is not the normalized "
        "model: an exporter that folds constants, unrolls or decomposes changes the work of "
        "contractions in the file. The amount is the native count of the file minus that of the "
        "model, module by module.",
        recognise="`crossflops count FILE` and `crossflops count TARGET` differ by this amount.",
    ),
    Cause(
        id="graph.function-not-inlined",
        title="a function that stays a call",
        page="The graph has a function as one call, and the tool does not look inside it. Keras "
        "compiles grouped convolutions on a CPU with XLA, and such functions are not inlined "
        "when the graph is frozen. Their convolutions count nothing, and the nodes after them "
        "have unknown shapes.",
        recognise="The graph has a StatefulPartitionedCall instead of a grouped convolution.",
        references=("tensorflow/tensorflow#39834",),
    ),
    Cause(
        id="graph.rebuilt",
        title="a module that was rebuilt from ONNX",
        page="The target is an ONNX file, or a model of another framework than the framework of "
        "the tool. The tool gets a model that was rebuilt from the (converted) file: a PyTorch "
        "module by onnx2torch, or a TensorFlow function by rules of crossflops. The work of "
        "contractions in it differs, for example because a product of constants was folded. The "
        "amount is the native count of the rebuilt module minus that of the model; all other "
        "causes refer to the rebuilt module. For parameters the amount is the additional "
        "parameters of the rebuilt module: statistics of a batch normalization that was "
        "decomposed, or weights that were constants.",
        recognise="`crossflops count` gives one number for the model, and another for the module "
        "that a converter such as `onnx2torch.convert` makes from its ONNX file.",
    ),
)


# Causes of control flow: what runs more than once, or not at all, or for nothing.

_CONTROL_CAUSES = (
    Cause(
        id="control.dead-code",
        title="computed, and never used",
        page="The model computes something that no output depends on. Tools that observe a run "
        "of the model and tools that read the nodes of a file count this work; tools that trace "
        "a graph and the native count do not. A trace keeps values that are written into a "
        "buffer, a parameter or an input (a running mean, a cache).",
        recognise="Deleting the line that computes it changes the tool's number, but no output.",
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
        page="The graph has a loop as one node with a body. The native count multiplies the work "
        "of the body by the number of iterations; the tool counts the body once or not at all.",
        recognise="The tool's number does not depend on the number of iterations.",
    ),
    Cause(
        id="control.one-device",
        title="the program of one device, not of all",
        page="A shard_map of JAX runs its body on each device of a mesh, on a part of the data. "
        "The native count is the work of all devices together; XLA's analysis counts the program "
        "of one device.",
        recognise="The tool's number is the native count divided by the number of devices.",
    ),
    Cause(
        id="control.branch",
        title="branches that do not run",
        page="The graph has both branches of a condition. A tool counts the larger branch, the "
        "branch that ran, both, or neither.",
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
        title="images with channels first count nothing",
        page="The rule of the tool is only for images with the channels last. Pools and "
        "transposed convolutions of images with the channels first count nothing, without a "
        "warning.",
        recognise="The number grows when the same layer is given data_format='channels_last'.",
    ),
)


# Causes of scope: which mode, which passes and how many examples a number stands for.

_SCOPE_CAUSES = (
    Cause(
        id="scope.mode-forced-eval",
        title="evaluation mode instead of training mode",
        page="The tool puts the model into evaluation mode before it counts. Some models run "
        "other code in training mode, such as auxiliary classifiers, and so have other work "
        "there.",
        recognise="The amount is 0 without --train-mode.",
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
        page="The tool divides its total, or a part of it, by the batch size, so that the number "
        "is for one example; the native count is for the whole input.",
        recognise="The tool's number does not grow in proportion to the batch size.",
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
        page="The tool counts the work of gradients outside of their products: gradients of "
        "activations, norms and pools, sums for biases, and the sum of several gradients of one "
        "tensor. If a model computes gradients itself, the native MACs include only operators "
        "that can be converted, and the other products of gradients are in the amount, too.",
        recognise="The graph has operators whose names end in Grad or Backprop; in a program of "
        "JAX they are in scopes such as transpose(jvp(...)).",
    ),
)


# Causes of what XLA's compilation does to a program, and with it to what is counted.

_BOTH = "The tool counts the compiled program, not the program that is given to the compiler. "
_SEE = "Print both: jax.jit(f).lower(*args).as_text() and the same after .compile()."

_XLA_CAUSES = (
    Cause(
        id="xla.computed-again",
        title="work that fusion repeats",
        page=f"{_BOTH}If several fused loops need one value, each of them computes it again "
        "instead of reading it: a normalization whose result has two users counts twice.",
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
        "infinity is removed, and constants are folded.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-reduction",
        title="sums that are split differently",
        page=f"{_BOTH}A sum over a long axis is split into windows, a cumulative sum into "
        "blocks, and the gradient of a pool into a search and a scatter.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-contraction",
        title="products and convolutions that are rewritten",
        page=f"{_BOTH}A grouped convolution may become a convolution over all channels with "
        "zeros between the groups. A convolution may become a product, or the other way round.",
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
        page=f"{_BOTH}Operations that a processor cannot compute in bfloat16 are computed in "
        "float32, with a conversion before and after; each conversion counts 1 per element.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.library-call",
        title="library calls that are added or removed",
        page=f"{_BOTH}The compiler replaces some work by a call of a library. The analysis uses "
        "-1 for such a call, which means unknown, and adds it to the total.",
        recognise=_SEE,
    ),
)


CAUSES = (*_GRAPH_CAUSES, *_CONTROL_CAUSES, *_LAYOUT_CAUSES, *_SCOPE_CAUSES, *_XLA_CAUSES)
