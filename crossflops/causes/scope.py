"""Causes of scope: which mode, which passes and how many examples a number stands for."""

from crossflops.core.convention import Cause, Example

CAUSES = (
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
        page="The model computes gradients, and the tool counts that work; the native MACs are "
        "those of the operators that can be converted.",
        recognise="The graph has operators whose names end in Grad or Backprop.",
    ),
)
