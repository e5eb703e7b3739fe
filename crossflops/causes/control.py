"""Causes of control flow: what runs more than once, or not at all, or for nothing."""

from crossflops.core.convention import Cause, Example

CAUSES = (
    Cause(
        id="control.dead-code",
        title="computed, and never used",
        page="The model computes something that no output depends on. Tools that watch the model "
        "run count it; tools that trace a graph, and the native count, do not. A trace keeps "
        "what is written into a buffer, a parameter or an input (a running mean, a cache).",
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
