"""Products with sparse tensors: what runs is stored elements times columns, by one run."""

import pytest

import crossflops
from crossflops.errors import NormalizeError
from crossflops.frontends.pytorch.convert import sparse
from tests.models import Apply, F, nn, torch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:Sparse"),
]
LAYOUTS = ("to_sparse", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr")
ROWS = torch.randn(8, 3)


def pattern():
    """Of 6 x 8, 10 elements that are not 0, in 9 blocks of 2 x 2."""
    matrix = torch.zeros(6, 8)
    matrix[::2, ::3] = 1.5
    matrix[1, 2] = 2.0
    return matrix


def stored(layout):
    """The matrix in that layout, and how many elements it stores, zeros in blocks too."""
    if layout == "to_sparse_bsr":
        return pattern().to_sparse_bsr((2, 2)), 9 * 4
    return getattr(pattern(), layout)(), 10


def holding(function, matrix, how):
    """A model that has the matrix in this way, and its inputs."""
    if how == "argument":
        return Apply(lambda _, x, held: function(held, x)), (ROWS, matrix)
    model = Apply(lambda s, x: function(s.matrix, x))
    if how == "parameter":
        model.matrix = nn.Parameter(matrix)
    elif how == "buffer":
        model.register_buffer("matrix", matrix)
    else:
        model.matrix = matrix
    return model, (ROWS,)


def work(model, *inputs, **options):
    """MACs, FLOPs and what they are worth; every node has a count."""
    report = crossflops.count(model, inputs, **options)
    assert not report.uncounted
    return report.macs, report.flops, report.totals.exactness["macs"]


PRODUCTS = {
    "torch.sparse.mm": (lambda m, x: torch.sparse.mm(m, x), 3),
    "@": (lambda m, x: m @ x, 3),
    "mv": (lambda m, x: torch.mv(m, x[:, 0]), 1),
    "linear": (lambda m, x: F.linear(x.t(), m), 3),
}


@pytest.mark.parametrize(
    ("layout", "how", "product"),
    [
        *((layout, "attribute", "@") for layout in LAYOUTS),
        *((layout, "buffer", "torch.sparse.mm") for layout in LAYOUTS[:2]),
        *((layout, "parameter", "linear") for layout in LAYOUTS[:2]),
        *((layout, "argument", "mv") for layout in LAYOUTS[1:2]),
    ],
)
def test_a_product_takes_what_is_stored_times_columns(layout, how, product):
    """10 elements of the matrix, or 36 in its blocks, meet 3 columns, or 1."""
    matrix, elements = stored(layout)
    function, columns = PRODUCTS[product]
    model, inputs = holding(function, matrix, how)
    macs, flops, exactness = work(model, *inputs)
    assert (macs, flops, exactness) == (elements * columns, 2 * elements * columns, "exact")


def test_elements_of_one_place_are_multiplied_apart():
    """30 edges of 3 nodes, of which several are the same: 30 * 4 MACs beside 3 * 4 * 4."""
    edges = torch.randint(0, 3, (2, 30), generator=torch.Generator().manual_seed(1))
    ones = torch.ones(30)
    model = Apply(
        lambda s, x, at: torch.sparse.mm(torch.sparse_coo_tensor(at, ones, (3, 3)), s.layer(x)),
        layer=nn.Linear(4, 4, bias=False),
    )
    report = crossflops.count(model, (torch.randn(3, 4), edges))
    assert report.macs == 48 + 30 * 4
    assert [node.op for node in report.nodes if node.depends_on_inputs]


def test_elements_of_one_place_are_summed_first_where_the_model_says_so():
    """5 elements in 3 places: 2 adds, then 3 * 3 MACs."""
    at = torch.tensor([[0, 0, 1, 1, 1], [2, 2, 0, 0, 3]])
    model = Apply(lambda s, x: s.matrix.coalesce() @ x)
    model.register_buffer("matrix", torch.sparse_coo_tensor(at, torch.ones(5), (6, 8)))
    assert work(model, ROWS) == (9, 2 * 9 + 2, "exact")


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_two_sparse_factors_meet_where_both_have_elements(layout):
    """The sum over k of what column k of A and row k of B store, by a loop."""
    left, right = pattern(), pattern().t().roll(1, 0)
    pairs = sum(
        int(bool(left[i, k]) and bool(right[k, j]))
        for i in range(6)
        for k in range(8)
        for j in range(6)
    )
    first, second = (getattr(matrix, layout)() for matrix in (left, right))
    model = Apply(lambda s, x: (s.first @ s.second).to_dense() + x.sum())
    model.register_buffer("first", first)
    model.register_buffer("second", second)
    assert 0 < pairs == work(model, ROWS)[0]


DENSE = torch.ones(6, 3)
OTHERS = {
    # beta and alpha other than 1: 2 * 18 muls, 18 adds
    "addmm": (lambda m, x: torch.sparse.addmm(DENSE, m, x, beta=0.5, alpha=2.0), 30, 54),
    "transposed": (lambda m, x: m.t() @ DENSE + x, 30, 24),
    "dense by sparse": (lambda m, x: x.t() @ m.t(), 30, 0),
    "hspmm": (lambda m, x: torch.hspmm(m, x).to_dense(), 30, 0),
    # of 10 elements in 4 rows: 6 compares, 10 subs, 10 exps, 6 adds, 10 divs
    "softmax": (lambda m, x: torch.sparse.softmax(m, 1) @ x, 30, 42),
    "scaled": (lambda m, x: (m * 2) @ x, 30, 10),
    "relu": (lambda m, x: torch.relu(m) @ x, 30, 10),
    # 10 elements in 4 rows are 6 adds, 24 elements of x 23 and the sum of both 6
    "sum": (lambda m, x: torch.sparse.sum(m, 1).to_dense() + x.sum(), 0, 35),
    "smm": (lambda m, x: torch.smm(m, x).to_dense(), 30, None),
    "smm of a tensor": (lambda m, x: m.smm(x).to_dense(), 30, None),
    "another type": (lambda m, x: m.to(torch.float64) @ x.double(), 30, 0),
    "to_dense": (lambda m, x: m.to_dense() @ x, 6 * 8 * 3, 0),
    "added to dense": (lambda m, x: (torch.ones(6, 8) + m) @ x, 6 * 8 * 3, 10),
    "made sparse": (lambda _, x: (x > x.min()).float().to_sparse() @ DENSE[:3], 23 * 3, None),
}


def test_other_operators_take_what_is_stored():
    """By hand: MACs, and the operations beside them."""
    parts = {
        name: holding(function, pattern().to_sparse(), "buffer")[0]
        for name, (function, _, _) in OTHERS.items()
    }
    model = Apply(lambda s, x: [part(x) for part in s.parts.values()], parts=nn.ModuleDict(parts))
    report = crossflops.count(model, (ROWS,))
    assert not report.uncounted
    rows = {row.path.removeprefix("parts."): row for row in report.modules}
    for name, (_, macs, beside) in OTHERS.items():
        assert rows[name].macs == macs, name
        assert beside is None or rows[name].flops == 2 * macs + beside, name


@pytest.mark.parametrize(
    ("function", "macs"),
    [
        (lambda empty, x: empty @ x, 0),
        (lambda empty, x: torch.sparse.mm(empty, x), 0),
        (lambda empty, x: empty.to_dense() @ x, 6 * 8 * 3),
    ],
    ids=["@", "torch.sparse.mm", "to_dense"],
)
def test_a_tensor_of_a_size_alone_stores_nothing(function, macs):
    """A model makes it when it runs: 6 x 8, times 8 x 3."""
    model = Apply(lambda _, x: function(torch.sparse_coo_tensor(size=(6, 8)), x))
    assert work(model, ROWS) == (macs, 2 * macs, "exact")


def test_what_is_stored_needs_values():
    """Elements of one place may be stored any number of times: no shape bounds the work."""
    model = Apply(
        lambda s, x, at: torch.sparse_coo_tensor(at, x[0], (8, 8)).to_dense() @ x.t(),
    ).to("meta")
    at = torch.zeros(2, 8, dtype=torch.long, device="meta")
    with pytest.raises(NormalizeError, match="no values"):
        crossflops.count(model, (torch.empty(3, 8, device="meta"), at))


def test_a_sampled_product_takes_only_what_is_stored():
    """10 places of a product with 3 terms each, and 10 adds to what is stored there."""
    model, inputs = holding(
        lambda m, x: torch.sparse.sampled_addmm(m, DENSE, x.t()).to_dense(),
        pattern().to_sparse_csr(),
        "buffer",
    )
    assert work(model, *inputs)[:2] == (30, 60 + 10)


def test_a_batch_of_sparse_matrices():
    """2 matrices with 10 elements each and 3 columns."""
    both = torch.stack([pattern(), pattern().flip(1)]).to_sparse()
    model = Apply(lambda s, x: torch.bmm(s.both, x.expand(2, 8, 3)))
    model.register_buffer("both", both)
    assert work(model, ROWS)[0] == 60


def dispatched(model):
    """The multiply-accumulates of the products that PyTorch runs backward, by their operands."""
    from torch.utils._python_dispatch import TorchDispatchMode

    taken = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = func.overloadpacket.__name__
            if name == "sparse_sampled_addmm":
                taken.append(args[0].values().numel() * args[1].shape[1])
            elif name == "mm":
                left, right = args
                sparse = left.layout != torch.strided
                stored = left.to_sparse_coo()._nnz() if sparse else left.numel()
                taken.append(stored * right.shape[1])
            return func(*args, **(kwargs or {}))

    loss = model(ROWS).sum()
    with Watching():
        loss.backward()
    return sum(taken)


@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_gradients_of_products_are_those_that_pytorch_runs(layout):
    """All products of both functions in one model, each with a trained and a constant matrix."""
    parts = {}
    for name in ("torch.sparse.mm", "@"):
        for trained in (False, True):
            part = Apply(
                lambda s, x, run=PRODUCTS[name][0]: run(s.matrix, s.layer(x)),
                layer=nn.Linear(3, 4, bias=False),
            )
            matrix = getattr(torch.eye(8), layout)()
            part.matrix = nn.Parameter(matrix) if trained else matrix
            parts[f"{len(parts)}"] = part
    model = Apply(
        lambda s, x: sum(part(x) for part in s.parts.values()), parts=nn.ModuleDict(parts)
    )
    step = crossflops.count(model, (ROWS,), train=True).training
    assert step.forward_macs == 4 * (96 + 32)
    assert step.backward_input_macs + step.backward_weight_macs == dispatched(model)
    # each layer's weight; a COO matrix takes 8 * 8 * 4, a CSR one by torch.sparse.mm 8 * 4
    whole = 8 * 8 * 4
    assert step.backward_weight_macs == 4 * 96 + whole + (whole if layout == "to_sparse" else 32)


@pytest.mark.parametrize("training", [False, True])
def test_a_sparse_buffer_beside_batch_normalization(training):
    """8 * 3 * 4 MACs of the layer and 8 * 4 of the identity."""
    model = Apply(
        lambda s, x: s.norm(s.matrix @ s.layer(x)),
        layer=nn.Linear(3, 4, bias=False),
        norm=nn.BatchNorm1d(4),
    )
    model.register_buffer("matrix", torch.eye(8).to_sparse())
    assert work(model.train(training), ROWS)[0] == 96 + 32


@pytest.mark.tools
@pytest.mark.parametrize("layout", LAYOUTS[:2])
def test_tools_beside_a_sparse_product(layout):
    """What each prints is predicted."""
    model, inputs = holding(lambda m, x: m @ x, stored(layout)[0], "buffer")
    report = crossflops.compare(model, inputs, isolate=False, tools=["torch-flop-counter", "thop"])
    assert report.residuals == {"thop": 0, "torch-flop-counter": 0}


def test_a_program_that_does_not_run_is_refused():
    """Shapes follow where no kernel does: what is stored cannot be seen, and is not guessed."""
    with torch.library._scoped_library("crossflops_tests", "FRAGMENT") as library:
        library.define("only_shaped(Tensor x) -> Tensor")
        library.impl("only_shaped", torch.empty_like, "Meta")
        program = torch.export.export(
            Apply(lambda _, m, x: torch.sparse.mm(m, torch.ops.crossflops_tests.only_shaped(x))),
            (pattern().to_sparse(), ROWS),
        )
        with pytest.raises(NormalizeError, match="the exported program does not run") as refused:
            sparse.replace_sparse_operators(program)
    assert "use dense tensors" in refused.value.hint
