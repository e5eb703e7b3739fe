"""Causes of matrix products that are counted by another formula than their MACs, or not seen."""

from crossflops.core.convention import Cause, Example

CAUSES = (
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
