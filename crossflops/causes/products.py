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
        "The tool uses the formula of the forward convolution, per output position, and with it a "
        "factor of about stride^2 too many.",
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
        page="The weight of a transposed convolution is [Ci, Co/g, k...]: its groups are in it. A "
        "tool that divides by the groups once more counts g times too few; one that takes Co for "
        "Co/g counts g times too many.",
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
        title="an output size computed anew",
        page="The tool does not look at the result of a convolution but computes its size from "
        "padding, stride and dilation. For what its formula does not know, such as "
        'padding="same" with an even kernel, it is off.',
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
        recognise='The layers that are missing have padding="same" or padding="valid".',
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
        page="The tool knows two-dimensional convolutions alone. Those of one dimension (audio, "
        "text), of three (video, volumes) and transposed ones count nothing.",
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
        page="In a training step the tool takes the gradient of a convolution's weight for a "
        "convolution of all channels of the input with all channels of the output. A grouped one "
        "pairs those of its group alone, so the gradient costs a part, 1 / groups, of what is "
        "counted.",
        recognise="The amount is (groups - 1) x the forward work of every grouped convolution "
        "whose weight is trained. It is 0 when the weights are frozen.",
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
        "(aten::convolution_backward), for which the tool has no formula. A convolution counts in "
        "the forward pass alone; the products of linear layers count in both.",
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
        page="In a training step the tool takes the gradient of an image or of a filter to cost "
        "2 x image positions / strides x filter elements. The gradients meet the windows of the "
        "forward pass: without padding there are fewer than image positions / strides, and where "
        "the strides do not divide the size, more.",
        recognise="It is 0 where padding keeps the size and the strides divide it.",
    ),
    Cause(
        id="conv.by-class-name",
        title="a convolution by its class name",
        page='The tool takes every class for a convolution whose name contains "Conv", and no '
        "other. A subclass of nn.Conv2d with another name then counts like a linear layer, and "
        "the linear layer that transformers calls Conv1D like a convolution: GPT-2 comes out 3.9 "
        "times too large.",
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
        page="The tool takes the second axis of the input for the channels, or the first for the "
        "batch. An unbatched input (C, H, W) has its height, or its channels, there.",
        recognise="The count of a single image changes when a batch axis of 1 is put before it.",
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
        title="dilated convolutions on cut images",
        page="TensorFlow runs a dilated convolution as one without dilation on an image that was "
        "padded and cut into as many as the rate has steps (SpaceToBatchND). The cuts are of "
        "equal size, so there are up to a step more results than the convolution has, and these "
        "are counted.",
        recognise="The graph has SpaceToBatchND before the convolution, and the sizes of the "
        "image are no multiples of the rate.",
    ),
    Cause(
        id="conv.padding-valid-taps",
        title="taps on padding and in holes, left out",
        page="The tool counts a multiplication only where the filter meets an element of the "
        "image: taps that fall on padding are left out, and in a transposed convolution those "
        "that fall in the holes between elements. The native count has every tap, as a kernel "
        "that runs over a padded image does.",
        recognise="Without padding the counts agree. With padding the border of the image makes "
        "the difference, the larger the smaller the image is.",
    ),
)


# Causes of matrix products that are counted by another formula than their MACs, or not seen.

_MATMUL_CAUSES = (
    Cause(
        id="matmul.leading-dims-lost",
        title="leading axes of a linear layer",
        page="A linear layer applied to more than two axes does its product once per row of all "
        "leading axes. A tool that knows only the batch axis counts too few.",
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
        page="numpy.matmul broadcasts batch axes. The tool multiplies the elements of the first "
        "operand by the last axis of the second, so axes that only the second one has are lost: "
        "(6, 8) @ (2, 4, 8, 10) gives 480 for 3840.",
        recognise="A product of a matrix with a batch of matrices counts as a single one.",
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
        title="x @ y, no function",
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
        page="The tool takes the cost that numpy.einsum_path prints, which has four digits, is "
        "one too many, and counts a product without a sum as work of a contraction.",
        recognise="The count of an einsum ends in zeros, or is odd where its extents are even.",
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
        page="A product of complex numbers is four products of real ones, and so the native MACs "
        "count it. The tool multiplies extents, whatever the type, and counts one.",
        recognise="Layers on complex tensors count a quarter.",
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
        title="the inner axis of a product with a transposed operand",
        page="The tool takes the last axis of the first operand for the one that is summed over, "
        "also where that operand is read transposed. It then counts its rows instead.",
        recognise="The product reads its first operand transposed, and the operand is not square.",
    ),
)


# Causes of the additions of biases, which the native MACs have none of.

_FINE = "The amount is the number of output elements of the layers that have a bias."

_BIAS_CAUSES = (
    Cause(
        id="bias.conv",
        title="biases of convolutions",
        page="The addition of a convolution's bias, one per output element, is in the total. "
        "thop 0.0.31 counts it, thop 0.1.1 does not. Absent where batch norm follows, since such "
        "convolutions have no bias.",
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
        page="The addition of a linear layer's bias, one per output element, is in the total: "
        "1000 on a classifier of 1000 classes. Some tools count it for convolutions and not here.",
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
        page="Both bias vectors of every gate, 2 g H per step and sample (g = 1, 3, 4 for RNN, "
        "GRU, LSTM), are in the total. Some tools count these although they ignore the biases of "
        "convolutions and linear layers.",
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
        page="The biases of the query, key, value and output projections inside "
        "nn.MultiheadAttention, one per element of each projection, are in the total.",
        recognise="The amount is 4 x length x width for each block of self-attention, or 3 x or 1 "
        "x where only the input or the output projection is counted so.",
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
        page="scaled_dot_product_attention is one operator, for which the tool has no rule or of "
        "which the fused kernel that the CPU runs is unknown to it. B x H x Sq x Sk x (D + Dv) "
        "MACs are missing.",
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
        "projections and products are all missing. Hooks on the modules of an encoder layer "
        "switch that layer's path off, so tools with hooks and tools without see different "
        "executions of one model. With gradients enabled the path is not taken.",
        recognise="The tool's number changes between torch.no_grad() and gradients.",
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
        title="attention by a rule, and its products once more",
        page="The tool has a rule for nn.MultiheadAttention and also replaces the functions that "
        "it calls when weights are asked for (bmm, baddbmm, softmax): both are booked.",
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
        title="attention by a rule of its sizes",
        page="The tool computes the work of an attention module from the lengths and sizes of "
        "query, key and value alone: keys and values of another size are projected by a square "
        "of that size, and tokens that the module adds itself are not there.",
        recognise="The difference vanishes with kdim = vdim = embed_dim and without add_bias_kv.",
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
        page="The multiplication of the scores by 1/sqrt(D) and the softmax over them, which a "
        "rule for attention adds to its products, are in the total.",
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
        page="Where no gradients are asked for, nn.TransformerEncoder makes a nested tensor of "
        "its input and a src_key_padding_mask: the layers run on the positions that the mask "
        "leaves. The tool counts these alone. The native count is that of the whole sequence, "
        "whatever the mask holds.",
        recognise="enable_nested_tensor=False brings the number back.",
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
