"""Causes of attention: fused kernels, rules of its modules, products that are booked again."""

from crossflops.ir.reconciliation import Cause, Example

CAUSES = (
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
