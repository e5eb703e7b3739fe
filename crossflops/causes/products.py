"""Causes of convolutions and matrix products that are counted by another formula, biases, and
attention.

Of attention: fused kernels, rules of its modules, products that are booked again.
"""

from crossflops.ir.reconciliation import Cause, Example

_CONV_CAUSES = (
    Cause(
        id="conv.transpose-output-size",
        title="transposed convolutions by output size",
        page="A transposed convolution does Ci x Co/g x K multiplications per *input* position. "
        "The tool uses the formula of the forward convolution, per output position, so its "
        "number is too large by a factor of about stride^2.",
        recognise="A decoder with ConvTranspose of stride 2 counts about 4 times too much.",
        example=Example(
            code="model = nn.ConvTranspose2d(8, 4, 2, stride=2, bias=False)\n"
            "inputs = torch.randn(1, 8, 8, 8)",
            tool="thop",
            amount=24576,
        ),
        references=(
            "Lyken17/pytorch-OpCounter#20",
            "Lyken17/pytorch-OpCounter#93",
            "ThanatosShinji/onnx-tool#32",
        ),
    ),
    Cause(
        id="conv.transpose-groups",
        title="groups of transposed convolutions",
        page="The weight of a transposed convolution has the shape [Ci, Co/g, k...], which "
        "already includes the groups. A tool that divides by the groups again counts g times too "
        "few; a tool that uses Co instead of Co/g counts g times too many.",
        recognise="Only transposed convolutions with groups differ, by the factor g.",
        example=Example(
            code="model = nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2, bias=False)\n"
            "inputs = torch.randn(1, 8, 8, 8)",
            tool="calflops-macs",
            amount=-4608,
        ),
        references=("deepspeedai/DeepSpeed#8323",),
    ),
    Cause(
        id="conv.output-size-recomputed",
        title="an output size that the tool computes itself",
        page="The tool does not read the size of the result of a convolution, but computes it "
        "from padding, stride and dilation. Its formula is wrong in some cases, such as "
        'padding="same" with an even kernel.',
        recognise="A single convolution with unusual padding differs by a few rows or columns.",
        example=Example(
            code='model = nn.Conv2d(3, 8, 4, padding="same", bias=False)\n'
            "inputs = torch.randn(1, 3, 16, 16)",
            tool="deepspeed-macs",
            amount=-11904,
        ),
    ),
    Cause(
        id="conv.string-padding-unsupported",
        title='convolutions with padding="same"',
        page='A convolution with padding="same" or "valid" is traced as another operator '
        "(aten::_convolution_mode), for which the tool has no formula.",
        recognise='The missing layers have padding="same" or padding="valid".',
        example=Example(
            code='model = nn.Conv2d(3, 8, 3, padding="same", bias=False)\n'
            "inputs = torch.randn(1, 3, 16, 16)",
            tool="fvcore",
            amount=-55296,
        ),
    ),
    Cause(
        id="conv.dim-unsupported",
        title="convolutions of one or three dimensions",
        page="The tool has a rule only for two-dimensional convolutions. Convolutions of one "
        "dimension (audio, text), of three (video, volumes) and transposed convolutions count "
        "nothing.",
        recognise="A Conv1d or Conv3d model has nearly no cost.",
        example=Example(
            code="model = nn.Conv1d(4, 8, 3, padding=1, bias=False)\n"
            "inputs = torch.randn(1, 4, 10)",
            tool="torch-profiler",
            amount=-960,
        ),
    ),
    Cause(
        id="conv.grouped-weight-gradient",
        title="gradients of grouped weights, too large",
        page="In a training step the tool counts the gradient of a convolution's weight as a "
        "convolution of all input channels with all output channels. A grouped convolution "
        "combines only the channels of one group, so the real work is 1 / groups of the counted "
        "work.",
        recognise="The amount is (groups - 1) x the forward work of every grouped convolution "
        "whose weight is trained. The amount is 0 if the weights are frozen.",
        example=Example(
            code="model = nn.Conv2d(4, 4, 3, groups=4)\ninputs = torch.ones(1, 4, 5, 5)",
            tool="torch-flop-counter",
            amount=972,
            options=("--train",),
        ),
    ),
    Cause(
        id="conv.backward-unsupported",
        title="no formula for the gradients of convolutions",
        page="In a training step the gradients of a convolution are one operator "
        "(aten::convolution_backward), for which the tool has no formula. A convolution counts "
        "only in the forward pass; the products of linear layers count in both passes.",
        recognise="The amount is the backward work of every convolution.",
        example=Example(
            code="model = nn.Conv2d(1, 1, 3)\ninputs = torch.ones(1, 1, 5, 5)",
            tool="torch-profiler",
            amount=-81,
            options=("--train",),
        ),
    ),
    Cause(
        id="conv.backward-by-strides",
        title="gradients of convolutions by image size over strides",
        page="In a training step the tool counts 2 x image positions / strides x filter elements "
        "for the gradient of an image or of a filter. The correct number of positions is the "
        "number of windows in the forward pass. Without padding there are fewer windows than "
        "image positions / strides; if the strides do not divide the size, there may be more.",
        recognise="The amount is 0 if padding keeps the size and the strides divide it.",
    ),
    Cause(
        id="conv.by-class-name",
        title="a convolution by its class name",
        page='The tool counts a class as a convolution only if its name contains "Conv". A '
        "subclass of nn.Conv2d with another name counts like a linear layer, and Conv1D of "
        "transformers, which is a linear layer, counts like a convolution: the number of GPT-2 "
        "is 3.9 times too large.",
        recognise="Renaming the class changes the tool's number.",
        example=Example(
            code="class Filter(nn.Conv2d): pass\nmodel = Filter(3, 8, 3, padding=1, bias=False)\n"
            "inputs = torch.randn(1, 3, 16, 16)",
            tool="torchinfo",
            amount=-55080,
        ),
    ),
    Cause(
        id="conv.unbatched-axis",
        title="channels read from the wrong axis",
        page="The tool reads the channels from the second axis of the input, or the batch size "
        "from the first. In an unbatched input (C, H, W) these axes are the height and the "
        "channels.",
        recognise="The count of a single image changes if it gets a batch axis of 1.",
        example=Example(
            code="model = nn.Conv2d(3, 8, 3, padding=1, bias=False)\n"
            "inputs = torch.randn(3, 16, 16)",
            tool="thop",
            amount=239616,
        ),
        references=("Lyken17/pytorch-OpCounter#212",),
    ),
    Cause(
        id="conv.dilation-by-batches",
        title="dilated convolutions on split images",
        page="TensorFlow runs a dilated convolution as a convolution without dilation on a "
        "padded image that is split into parts, as many as the dilation rate (SpaceToBatchND). "
        "The parts have equal sizes, so there may be more results than the dilated convolution "
        "has, and the tool counts these, too.",
        recognise="The graph has SpaceToBatchND before the convolution, and the sizes of the "
        "image are not multiples of the rate.",
    ),
    Cause(
        id="conv.padding-valid-taps",
        title="multiplications with padding and holes, left out",
        page="The tool counts only multiplications of the filter with elements of the image. It "
        "leaves out multiplications with padding and, in a transposed convolution, with the "
        "zeros between elements. The native count has all of them, like a kernel that runs over "
        "a padded image.",
        recognise="Without padding the counts agree. With padding the amount comes from the "
        "border of the image; its share is larger for smaller images.",
    ),
)


# Causes of matrix products that are counted by another formula than their MACs, or not seen.

_MATMUL_CAUSES = (
    Cause(
        id="matmul.leading-dims-lost",
        title="leading axes of a linear layer",
        page="A linear layer on an input of more than two axes computes a product for each row "
        "of all leading axes. A tool that uses only the batch axis counts too few.",
        recognise="A transformer's count does not depend on the length of its input.",
        example=Example(
            code="model = nn.Linear(64, 32, bias=False)\ninputs = torch.randn(2, 10, 64)",
            tool="torchinfo",
            amount=-36864,
        ),
        references=("TylerYep/torchinfo#77",),
    ),
    Cause(
        id="matmul.broadcast-batch-lost",
        title="broadcast batch axes of a product",
        page="numpy.matmul broadcasts batch axes. The tool multiplies the number of elements of "
        "the first operand by the last axis of the second, so axes that only the second operand "
        "has are ignored: (6, 8) @ (2, 4, 8, 10) gives 480 for 3840.",
        recognise="A product of a matrix with a batch of matrices counts as a single product.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x, y):\n"
            "        return torch.matmul(x, y)\n"
            "model = Model()\n"
            "inputs = torch.randn(6, 8), torch.randn(2, 4, 8, 10)",
            tool="fvcore",
            amount=-3360,
        ),
    ),
    Cause(
        id="matmul.operator-invisible",
        title="x @ y instead of a function",
        page="The product is written with the operator @, which calls neither a module nor a "
        "function that could be hooked or replaced.",
        recognise="Replacing x @ y by torch.matmul(x, y) changes the tool's number.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x, y):\n"
            "        return x @ y\n"
            "model = Model()\n"
            "inputs = torch.randn(2, 10, 8), torch.randn(2, 8, 10)",
            tool="thop",
            amount=-1600,
        ),
        references=("deepspeedai/DeepSpeed#3087", "deepspeedai/DeepSpeed#4723"),
    ),
    Cause(
        id="einsum.path-estimate",
        title="einsum estimated from a printed path",
        page="The tool uses the cost that numpy.einsum_path prints. That cost is rounded to four "
        "digits, is too large by one, and includes products without a sum.",
        recognise="The count of an einsum ends in zeros, or is odd although the lengths of all "
        "axes are even.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x, y):\n"
            '        return torch.einsum("bij,bjk->bik", x, y)\n'
            "model = Model()\n"
            "inputs = torch.randn(2, 10, 8), torch.randn(2, 8, 10)",
            tool="deepspeed",
            amount=1,
        ),
    ),
    Cause(
        id="contraction.complex",
        title="products of complex numbers",
        page="A product of complex numbers is four products of real numbers, and the native MACs "
        "count 4. The tool multiplies sizes for every type, and counts 1.",
        recognise="The number for layers on complex tensors is a quarter of the native count.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x):\n"
            "        return x @ x\n"
            "model = Model()\n"
            "inputs = torch.randn(3, 3, dtype=torch.complex64)",
            tool="fvcore",
            amount=-81,
        ),
    ),
    Cause(
        id="matmul.adjoint-ignored",
        title="the summed axis of a product with a transposed operand",
        page="The tool assumes that the sum runs over the last axis of the first operand, also "
        "if that operand is transposed. Then it uses the number of rows instead.",
        recognise="The product reads its first operand transposed, and the operand is not square.",
    ),
)


# Causes of the additions of biases, which the native MACs have none of.

_FINE = "The amount is the number of output elements of the layers that have a bias."

_BIAS_CAUSES = (
    Cause(
        id="bias.conv",
        title="biases of convolutions",
        page="The total includes the addition of a convolution's bias, 1 for each output "
        "element. thop 0.0.31 counts it, thop 0.1.1 does not. A convolution before a batch norm "
        "usually has no bias, and so no amount.",
        recognise=_FINE,
        example=Example(
            code="model = nn.Conv2d(3, 8, 3, padding=1)\ninputs = torch.randn(1, 3, 16, 16)",
            tool="torchinfo",
            amount=2048,
        ),
    ),
    Cause(
        id="bias.linear",
        title="biases of linear layers",
        page="The total includes the addition of a linear layer's bias, 1 for each output "
        "element: 1000 on a classifier of 1000 classes. Some tools count the bias of "
        "convolutions, but not of linear layers.",
        recognise=f"{_FINE} A ResNet-50 that differs by exactly 1000 from another count.",
        example=Example(
            code="model = nn.Linear(64, 32)\ninputs = torch.randn(4, 64)",
            tool="ptflops-aten",
            amount=128,
        ),
    ),
    Cause(
        id="bias.rnn",
        title="biases of recurrent layers",
        page="The total includes the additions of both bias vectors of every gate, 2 g H for "
        "each step and sample (g = 1, 3, 4 for RNN, GRU, LSTM). Some tools count these, but not "
        "the biases of convolutions and linear layers.",
        recognise="The amount is 2 g H x steps x batch for each layer and direction.",
        example=Example(
            code="model = nn.LSTM(16, 32)\ninputs = torch.randn(5, 1, 16)",
            tool="thop",
            amount=1280,
        ),
    ),
    Cause(
        id="bias.attention-proj",
        title="biases of the projections of attention",
        page="The total includes the biases of the query, key, value and output projections "
        "inside nn.MultiheadAttention, 1 for each element of each projection.",
        recognise="The amount is 4 x length x width for each block of self-attention, or 3 x or "
        "1 x if the tool counts only the input or only the output projection.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)\n"
            "    def forward(self, x):\n"
            "        return self.layer(x, x, x, need_weights=False)[0]\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 10, 32)",
            tool="ptflops-pytorch",
            amount=1280,
        ),
    ),
)


_ATTENTION_CAUSES = (
    Cause(
        id="attention.sdpa",
        title="score and value products of attention",
        page="scaled_dot_product_attention is one operator. The tool has no rule for it, or does "
        "not know the fused kernel that runs on a CPU. B x H x Sq x Sk x (D + Dv) MACs are "
        "missing.",
        recognise="The missing amount grows with the square of the sequence.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, q):\n"
            "        return F.scaled_dot_product_attention(q, q, q)\n"
            "model = Model()\n"
            "inputs = torch.randn(2, 4, 10, 8)",
            tool="fvcore",
            amount=-12800,
        ),
        references=("pytorch/pytorch#195460", "Lyken17/pytorch-OpCounter#197"),
    ),
    Cause(
        id="attention.module-fastpath",
        title="attention modules in one fused kernel",
        page="In evaluation without gradients PyTorch runs nn.MultiheadAttention, and a whole "
        "nn.TransformerEncoderLayer, as one native operator, for which the tool has no formula: "
        "all projections and products are missing. PyTorch does not use this operator for an "
        "encoder layer whose modules have hooks, so tools with hooks and tools without hooks see "
        "different executions of one model. It does not use it if gradients are enabled either.",
        recognise="The tool's number differs with and without torch.no_grad().",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)\n"
            "    def forward(self, x):\n"
            "        return self.layer(x, x, x, need_weights=False)[0]\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 10, 32)",
            tool="torch-flop-counter",
            amount=-47360,
            options=("--no-grad",),
        ),
        references=("pytorch/pytorch#195460",),
    ),
    Cause(
        id="attention.double-counted",
        title="attention by a rule, and its products again",
        page="The tool has a rule for nn.MultiheadAttention and also replaces the functions that "
        "it calls when weights are requested (bmm, baddbmm, softmax), and counts both.",
        recognise="need_weights=False changes the tool's number.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)\n"
            "    def forward(self, x):\n"
            "        return self.layer(x, x, x)[0]\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 10, 32)",
            tool="ptflops-pytorch",
            amount=6800,
        ),
    ),
    Cause(
        id="attention.rule",
        title="attention by a formula over its sizes",
        page="The tool computes the work of an attention module only from the lengths and sizes "
        "of query, key and value. It assumes square projections for keys and values of another "
        "size, and ignores tokens that the module adds itself.",
        recognise="The amount is 0 with kdim = vdim = embed_dim and without add_bias_kv.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.MultiheadAttention(\n"
            "            32, 4, add_bias_kv=True, batch_first=True)\n"
            "    def forward(self, x):\n"
            "        return self.layer(x, x, x, need_weights=False)[0]\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 10, 32)",
            tool="ptflops-pytorch",
            amount=-640,
        ),
    ),
    Cause(
        id="attention.scale-or-softmax",
        title="scaling and softmax of attention",
        page="The total includes the multiplication of the scores by 1/sqrt(D) and their "
        "softmax, which a rule for attention adds to its products.",
        recognise="The amount is a multiple of B x H x Sq x Sk.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)\n"
            "    def forward(self, x):\n"
            "        return self.layer(x, x, x, need_weights=False)[0]\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 10, 32)",
            tool="ultralytics-thop",
            amount=1160,
        ),
    ),
    Cause(
        id="attention.padding-skipped",
        title="padded positions that an encoder drops",
        page="Without gradients, nn.TransformerEncoder makes a nested tensor of its input and a "
        "src_key_padding_mask: its layers run only on the positions that the mask keeps. The "
        "tool counts only these positions. The native count is that of the whole sequence, for "
        "any mask.",
        recognise="The amount is 0 with enable_nested_tensor=False.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)\n"
            "        self.encoder = nn.TransformerEncoder(layer, 1)\n"
            "    def forward(self, x):\n"
            "        mask = torch.tensor([[False, False, False, True]])\n"
            "        return self.encoder(x, src_key_padding_mask=mask)\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 4, 16)",
            tool="thop",
            amount=-1152,
        ),
    ),
)

CAUSES = (*_CONV_CAUSES, *_MATMUL_CAUSES, *_BIAS_CAUSES, *_ATTENTION_CAUSES)
