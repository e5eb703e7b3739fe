"""Causes of operators for which a tool has no rule, or a rule where nothing is computed."""

from crossflops.core.convention import Cause, Example

CAUSES = (
    Cause(
        id="op.unregistered-zero",
        title="operators without a rule",
        page="The tool has no rule for the operator and counts nothing. fvcore lists such "
        "operators, torchprofile warns, the others say nothing.",
        recognise="The call that is missing is no convolution, linear layer or plain product.",
        example=Example(
            code="model = nn.Bilinear(4, 5, 6, bias=False)\n"
            "inputs = torch.randn(2, 4), torch.randn(2, 5)",
            tool="calflops-macs",
            amount=-300,
        ),
        references=("facebookresearch/fvcore#143", "pytorch/pytorch#82951"),
    ),
    Cause(
        id="op.unregistered-nonzero",
        title="operators without a rule, counted all the same",
        page="The tool has no rule for the operator and counts one for each element of its first "
        "result, whatever it does: for MaxPool, Softmax and Sigmoid, and for Concat, Flatten and "
        "Identity, which compute nothing.",
        recognise="The amount is the number of elements of what these operators return.",
        example=Example(
            code="model = nn.MaxPool2d(2)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="onnx-opcounter",
            amount=512,
        ),
    ),
    Cause(
        id="tool.error",
        title="the tool fails",
        page="The tool raises on such a model, and prints nothing. What it would have counted is "
        "no amount of anything: the comparison shows its message, and goes on with the others.",
        recognise="The message stands where the total would.",
    ),
    Cause(
        id="embedding.lookup",
        title="embeddings",
        page="Looking up rows of a table is counted: as many operations as the table has "
        "elements, or as the result has. Nothing is multiplied.",
        recognise="The amount is a multiple of the vocabulary times the width.",
        example=Example(
            code="model = nn.Embedding(100, 16)\ninputs = torch.zeros(1, 10, dtype=torch.int64)",
            tool="torchinfo",
            amount=1600,
        ),
    ),
    Cause(
        id="memory.layer-traffic",
        title="bytes, not operations",
        page="What a layer reads and writes, summed over the layers: no count of work. It knows "
        "neither caches nor fusion, and nothing of what happens between modules.",
        recognise="The number is a multiple of 4 for a model of 32-bit floats, and does not grow "
        "with the size of kernels alone.",
        example=Example(
            code="model = nn.Sequential(nn.ReLU())\ninputs = torch.randn(1, 8, 16, 16)",
            tool="torchstat-memread",
            amount=8192,
        ),
    ),
    Cause(
        id="op.estimated",
        title="sorts and decompositions by an estimate",
        page="A sort counts n log2 n of all its elements, a Fourier transform 8 n log2 of its "
        "length, a Cholesky decomposition a third of n^3: estimates, whatever the program does.",
        recognise="The amount is no multiple of the elements of any tensor in the model alone.",
    ),
    Cause(
        id="op.library-call",
        title="calls of a library, counted -1",
        page="What a call of a library costs is not known to XLA's analysis. It counts -1 for it, "
        "which is added to the sum like any other count.",
        recognise="The total of a function that does nothing but call a library is -1.",
        references=("jax-ml/jax#20184",),
    ),
)
