"""A training step of JAX models: our count against a walk over what jax.value_and_grad makes."""

from functools import partial
from math import prod

import pytest

import crossflops
from crossflops.errors import InputError
from crossflops.frontends.jax.record.function import to_pure_function
from crossflops.ir.trace import Setting

pytestmark = pytest.mark.jax
jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
lax = pytest.importorskip("jax.lax")
nnx = pytest.importorskip("flax.nnx")
nn = pytest.importorskip("flax.linen")
partial_eval = pytest.importorskip("jax.interpreters.partial_eval")


def executed(jaxpr):
    """The products in a program and all in it; a scan as often as it runs."""
    macs = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (axes, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            macs += eqn.outvars[0].aval.size * prod(shape[axis] for axis in axes)
        elif eqn.primitive.name == "conv_general_dilated":
            macs += convolved(eqn)
        parts = [p if isinstance(p, tuple | list) else (p,) for p in eqn.params.values()]
        inner = [getattr(part, "jaxpr", part) for held in parts for part in held]
        times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        macs += times * sum(executed(held) for held in inner if hasattr(held, "eqns"))
    return macs


def convolved(eqn):
    """Products of a convolution, those with the holes of a dilated input left out.

    Padding counts: it lies on the grid of the input's own elements, as far as that is continued.
    """
    params, kernel = eqn.params, eqn.invars[1].aval
    numbers, result = params["dimension_numbers"], eqn.outvars[0].aval
    batch, features, *places = (result.shape[axis] for axis in numbers.out_spec)
    _, depth, *sizes = (kernel.shape[axis] for axis in numbers.rhs_spec)
    pairs = 1
    for axis, (place, size) in enumerate(zip(places, sizes, strict=True)):
        stride, hole = params["window_strides"][axis], params["lhs_dilation"][axis]
        step, (low, _) = params["rhs_dilation"][axis], params["padding"][axis]
        pairs *= sum(
            (at * stride + tap * step - low) % hole == 0
            for at in range(place)
            for tap in range(size)
        )
    return batch * features * depth * pairs


def summed_up(model, args, trained):
    """The outputs as a function of all weights, their sum as one of those that are trained.

    With each what it takes.
    """
    own = to_pure_function(model, args, {}, training=False)
    weights = own.weights
    closed = None
    if not jax.tree.leaves(weights):  # a function: its program with what it closes over
        closed = jax.make_jaxpr(model)(*args)
        weights = [array for array in closed.consts if array.ndim and array.dtype.kind == "f"]
    paths, tree = jax.tree_util.tree_flatten_with_path(weights)

    def outputs(leaves, *given):
        if closed is None:
            return own.weighted(jax.tree.unflatten(tree, leaves), *given)
        left = iter(leaves)
        floats = (a.ndim and a.dtype.kind == "f" for a in closed.consts)
        held = [next(left) if own else a for own, a in zip(floats, closed.consts, strict=True)]
        return jax.core.eval_jaxpr(closed.jaxpr, held, *given)

    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    leaves = [leaf for _, leaf in paths]
    places = [
        place
        for place, (name, leaf) in enumerate(zip(names, leaves, strict=True))
        if jnp.issubdtype(leaf.dtype, jnp.floating) and trained(name)
    ]

    def loss(chosen, others, *given):
        filled = list(others)
        for place, leaf in zip(places, chosen, strict=True):
            filled[place] = leaf
        results = jax.tree.leaves(outputs(filled, *given))
        return sum(r.sum() for r in results if jnp.issubdtype(r.dtype, jnp.floating))

    chosen = [leaves[place] for place in places]
    return (outputs, (leaves, *own.specs)), (loss, (chosen, leaves, *own.specs))


def step_of_jax(model, args, trained):
    """Forward and all products that jax.value_and_grad of the summed outputs runs."""
    (outputs, given), (loss, given_to_loss) = summed_up(model, args, trained)
    forward = jax.make_jaxpr(outputs)(*given)
    whole = jax.make_jaxpr(jax.value_and_grad(loss))(*given_to_loss)
    return tuple(
        executed(partial_eval.dce_jaxpr(p.jaxpr, [True] * len(p.jaxpr.outvars))[0])
        for p in (forward, whole)
    )


def spec(*shape, dtype="float32"):
    """An input."""
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


RANDOM = nnx.Rngs(0)
NARROW, SQUARE, STACKED = jnp.ones((3, 5)), jnp.ones((5, 5)), jnp.ones((3, 4, 4))


class Perceptron(nnx.Module):
    def __init__(self):
        self.a, self.b = (nnx.Linear(*sizes, rngs=RANDOM) for sizes in ((3, 5), (5, 4)))
        self.norm = nnx.LayerNorm(5, rngs=RANDOM)

    def __call__(self, x):
        return self.b(self.norm(nnx.relu(self.a(x))))


class Convolutions(nnx.Module):
    def __init__(self):
        self.a = nnx.Conv(3, 8, (3, 3), strides=2, rngs=RANDOM)
        self.norm = nnx.BatchNorm(8, rngs=RANDOM)
        self.b = nnx.Conv(8, 8, (3, 3), feature_group_count=4, rngs=RANDOM)
        self.c = nnx.ConvTranspose(8, 6, (3, 3), strides=(2, 2), rngs=RANDOM)
        self.d = nnx.Conv(6, 4, (3, 3), kernel_dilation=2, rngs=RANDOM)

    def __call__(self, x):
        return self.d(self.c(nnx.gelu(self.b(self.norm(nnx.silu(self.a(x)))))))


class Words(nnx.Module):
    """The table that looks words up is also the last layer."""

    def __init__(self):
        self.table = nnx.Embed(11, 8, rngs=RANDOM)
        self.attention = nnx.MultiHeadAttention(2, 8, rngs=RANDOM, decode=False)
        self.norm = nnx.RMSNorm(8, rngs=RANDOM)

    def __call__(self, words):
        x = self.table(words)
        return self.table.attend(x + self.attention(self.norm(x)))


class Recurrent(nnx.Module):
    def __init__(self):
        self.cells = nnx.RNN(nnx.OptimizedLSTMCell(3, 5, rngs=RANDOM))
        self.last = nnx.Linear(5, 2, rngs=RANDOM)

    def __call__(self, x):
        return self.last(self.cells(x))


class OfLinen(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=True)(nn.Conv(8, (3, 3))(x))
        x = nn.LayerNorm()(nn.Dense(6)(nn.relu(x).mean((1, 2))))
        return nn.remat(nn.Dense)(4)(x)


class Stopped(nnx.Module):
    """Taken as it is, and where no gradient flows back."""

    def __init__(self):
        self.a, self.b, self.c = (
            nnx.Linear(*sizes, rngs=RANDOM) for sizes in ((3, 5), (5, 5), (5, 4))
        )

    def __call__(self, x):
        x = jnp.tanh(self.b(lax.stop_gradient(self.a(x))))
        return self.c(x + lax.stop_gradient(x @ x.T) @ x)


class Checkpointed(nnx.Module):
    def __init__(self, policy=None):
        self.up = nnx.List([nnx.Linear(4, 7, rngs=RANDOM) for _ in range(3)])
        self.down = nnx.List([nnx.Linear(7, 4, rngs=RANDOM) for _ in range(3)])
        self.policy = policy

    def __call__(self, x):
        for up, down in zip(self.up, self.down, strict=True):
            x = jax.checkpoint(
                lambda x, up=up, down=down: x + down(nnx.relu(up(x))), policy=self.policy
            )(x)
        return x


def scanned(x):
    """A recurrent layer, written out."""

    def step(state, row):
        state = jnp.tanh(state @ SQUARE + row @ NARROW)
        return state, state

    return lax.scan(step, jnp.zeros((2, 5)), x)


def backwards(x):
    """A scan from the last row to the first, whose runs are nodes of their own."""

    def step(state, row):
        state = jnp.tanh(state @ SQUARE + row @ NARROW)
        return state, state @ SQUARE

    return lax.scan(step, jnp.zeros((2, 5)), x, reverse=True)[1]


def layers(x):
    """A scan over layers, each of them checkpointed."""
    layer = jax.checkpoint(lambda x, weight: (jnp.sin(x @ weight) @ weight, None))
    return lax.scan(layer, x, STACKED)[0]


def summed(x):
    """Three operands."""
    return jnp.einsum("bi,ij,jk->bk", x, NARROW, SQUARE)


def symmetric(x):
    """Of what x N makes, a matrix that has factors."""
    hidden = x @ NARROW
    return hidden.T @ hidden + 5 * jnp.eye(5)


def transforms(x):
    """Forward and back along the first axis, between two products."""
    spectrum = jnp.fft.rfft(jnp.tanh(x @ NARROW) @ SQUARE, axis=0)
    return jnp.fft.irfft(spectrum, axis=0) @ SQUARE


def special_functions(x):
    """Some of which a converter writes many nodes for."""
    hidden = jax.nn.sigmoid(x @ NARROW)
    made = jax.scipy.special.gammaln(hidden + 1) + jax.scipy.special.i0e(hidden)
    return (made + jax.scipy.special.erfinv(hidden / 2)) @ SQUARE


def magnitudes(x):
    """Of a spectrum, and what it is times its conjugate."""
    spectrum = jnp.fft.fft(x @ NARROW)
    return jnp.abs(spectrum) @ SQUARE + (spectrum * jnp.conj(spectrum)).real @ SQUARE


def stopped_loop(x):
    """What runs in the loop reaches the loss on no way that has a gradient."""
    hidden = x @ NARROW
    return (hidden + lax.stop_gradient(lax.fori_loop(0, 4, tanh_of, hidden))) @ SQUARE


def tanh_of(_, state):
    """A step of a loop."""
    return jnp.tanh(state @ SQUARE)


def unused_state(x):
    """Two states, of which one is used behind the loop."""

    def step(states, row):
        first, second = states
        return (jnp.tanh(first @ SQUARE + row @ NARROW), jnp.tanh(second @ SQUARE)), None

    return lax.scan(step, (jnp.zeros((2, 5)), x[0] @ NARROW), x, reverse=True)[0][0] @ SQUARE


def names_saved(x):
    """One of two sines is not made again."""
    name = pytest.importorskip("jax.ad_checkpoint").checkpoint_name
    policy = jax.checkpoint_policies.save_only_these_names("first")
    layer = jax.checkpoint(
        lambda h: jnp.sin(name(jnp.sin(h @ SQUARE), "first") @ SQUARE), policy=policy
    )
    return layer(x @ NARROW) @ SQUARE


@jax.custom_jvp
def clipped(x):
    """Between 0 and 6, with a derivative of its own, in which nothing is multiplied."""
    return jnp.clip(x, 0, 6)


clipped.defjvp(lambda given, tangents: (clipped(*given), tangents[0] * (given[0] > 0)))


class ScannedLayers(nn.Module):
    """Three layers in a scan, each made again for its gradients."""

    @nn.compact
    def __call__(self, x):
        many = nn.scan(
            nn.remat(ScannedLayer), {"params": 0}, split_rngs={"params": True}, length=3
        )
        return nn.Dense(2)(many()(nn.Dense(5)(x), None)[0])


class ScannedLayer(nn.Module):
    """Two products, of which a sine needs the first."""

    @nn.compact
    def __call__(self, x, _):
        return jnp.sin(nn.Dense(5)(jnp.sin(nn.Dense(5)(x)))), None


ODD = {
    "magnitudes": (magnitudes, spec(2, 3)),
    "a loop that is stopped": (stopped_loop, spec(2, 3)),
    "fori_loop": (lambda x: lax.fori_loop(0, 4, tanh_of, x @ NARROW) @ SQUARE, spec(2, 3)),
    "a state that is not used": (unused_state, spec(4, 2, 3)),
    "names that are saved": (names_saved, spec(2, 3)),
    "custom_jvp without products": (lambda x: clipped(x @ NARROW) @ SQUARE, spec(2, 3)),
    "vmap of a scan": (lambda x: jax.vmap(lambda y: scanned(y[:, None])[1])(x), spec(3, 4, 3)),
    "vmap of gradients": (
        lambda x: jax.vmap(jax.grad(lambda y: jnp.tanh(y @ NARROW @ SQUARE).sum()))(x) @ NARROW,
        spec(4, 3),
    ),
    "flax.linen.scan": (ScannedLayers(), spec(2, 4)),
}


DOTS = jax.checkpoint_policies.dots_saveable
# A converter writes many nodes for one operation, which has the gradients of the operation.
OPERATIONS = {
    "a Fourier transform": transforms,
    "special functions": special_functions,
    "cholesky": lambda x: jnp.linalg.cholesky(symmetric(x)) @ SQUARE,
    "eigh": lambda x: jnp.linalg.eigh(symmetric(x))[1] @ SQUARE,
}
MODELS = {
    "perceptron": (Perceptron, (spec(2, 3),), ()),
    "its first layer frozen": (Perceptron, (spec(2, 3),), ("a",)),
    "convolutions": (Convolutions, (spec(2, 8, 8, 3),), ()),
    "attention, tied": (Words, (spec(2, 6, dtype="int32"),), ()),
    "recurrent": (Recurrent, (spec(2, 4, 3),), ()),
    "flax.linen": (OfLinen, (spec(2, 8, 8, 3),), ()),
    "stop_gradient": (Stopped, (spec(2, 3),), ()),
    "checkpoints": (Checkpointed, (spec(2, 4),), ()),
    "checkpoints, frozen": (Checkpointed, (spec(2, 4),), ("up.0", "up.1", "down.0")),
    "checkpoints that keep": (lambda: Checkpointed(DOTS), (spec(2, 4),), ()),
    "scan": (lambda: scanned, (spec(4, 2, 3),), ()),
    "scan in reverse": (lambda: backwards, (spec(4, 2, 3),), ()),
    "layers in a scan": (lambda: layers, (spec(2, 4),), ()),
    "einsum": (lambda: summed, (spec(2, 3),), ()),
}


UNNAMED = {"graph.export-decomposition", "graph.one-side-alone"}  # a product of the one side alone


def is_trained(frozen, path):
    """Whether a weight is trained where these modules are frozen."""
    fixed = ("mean", "var", "rngs", "batch_stats")
    return not path.startswith(frozen) and not any(part in path for part in fixed)


@pytest.mark.parametrize("name", MODELS)
def test_what_jax_runs(name):
    """Forward, and forward and backward together, as the program of the gradients says."""
    make, args, frozen = MODELS[name]
    model = make()
    training = crossflops.count(model, args, train=True, frozen=frozen).training
    assert not training.uncounted
    assert (training.forward_macs, training.macs) == step_of_jax(
        model, args, partial(is_trained, frozen)
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_jax_runs_of_operations_of_many_nodes(name):
    """The products are those of the program, whose triangles are no products."""
    function, args = OPERATIONS[name], (spec(6, 3),)
    training = crossflops.count(function, args, train=True).training
    assert not training.uncounted
    expected = step_of_jax(function, args, lambda _: True)
    assert (training.forward_macs, training.macs) == expected


def test_a_system_is_solved_with_either_side_trained():
    """A X = B with B [5,4]: 100 MACs for dA, and 240 forward, 90 and 300 for x N and N^T N.

    Where A and B are of one size, and one of them is stopped, nothing tells which it is.
    """
    right = jnp.ones((5, 4))
    step = crossflops.count(
        lambda x: jnp.linalg.solve(symmetric(x), right), (spec(6, 3),), train=True
    ).training
    assert (step.uncounted, step.forward_macs, step.macs) == ((), 240, 240 + 90 + 300 + 100)

    def unsure(x):
        made = symmetric(x)
        return jnp.linalg.solve(made, lax.stop_gradient(jnp.tanh(made)))

    [row] = crossflops.count(unsure, (spec(6, 3),), train=True).training.uncounted
    assert "which operands need gradients" in row.reason


@pytest.mark.parametrize(
    ("function", "inner"), [(jnp.linalg.inv, 125), (lambda a: jnp.linalg.slogdet(a)[1], 0)]
)
def test_inverses_and_determinants(function, inner):
    """Of A = N^T X^T X N + 5 I: 240 forward, of which 90 are x N, whose x has no gradient.

    An inverse is the solution of A X = I: one product for dA. A determinant needs none.
    """
    report = crossflops.compare(
        lambda x: function(symmetric(x)),
        (spec(6, 3),),
        train=True,
        tools=["xla-lowered"],
        isolate=False,
    )
    step = report.training
    assert (step.uncounted, step.forward_macs, step.macs) == ((), 240, 240 + 390 + inner)
    account = report.reconciliation("xla-lowered")
    assert account.residual == 0
    assert {row.cause for row in account.explanations} & UNNAMED == set()


@pytest.mark.parametrize("name", ODD)
def test_odd_models(name):
    """The count is that of the program, and the difference to XLA has no residual."""
    model, given = ODD[name]
    report = crossflops.compare(
        model, (given,), train=True, tools=["xla-lowered", "xla-compiled"], isolate=False
    )
    expected = step_of_jax(model, (given,), partial(is_trained, ()))
    assert not report.training.uncounted
    assert (report.training.forward_macs, report.training.macs) == expected
    for tool in ("xla-lowered", "xla-compiled"):
        assert report.reconciliation(tool).residual == 0


def branched(yes, no):
    """A condition on what x N is, and a product behind it."""
    return lambda x: lax.cond(x.sum() > 0, yes, no, x @ NARROW) @ SQUARE


def one(h):
    """50 MACs of 2 rows."""
    return h @ SQUARE


def two(h):
    """100 MACs."""
    return jnp.tanh(h @ SQUARE) @ SQUARE


@pytest.mark.parametrize(("branches", "more"), [((two, one), 0), ((one, two), 150)])
def test_branches_of_a_condition(branches, more):
    """XLA counts the dearer one, of 300 MACs in a step, we that which ran, of ones or zeros."""
    report = crossflops.compare(
        branched(*branches), (spec(2, 3),), train=True, tools=["xla-lowered"], isolate=False
    )
    account = report.reconciliation("xla-lowered")
    amounts = {row.cause: row.amount for row in account.explanations}
    assert (account.residual, amounts.get("control.branch", 0)) == (0, more)
    assert amounts.keys() & UNNAMED == set()


def test_a_model_that_jax_cannot_derive():
    """The tools fail with JAX's reason, and the count stays, in which the loop is named."""

    def function(x):
        body = lambda state: (state[0] + 1, jnp.tanh(state[1] @ SQUARE))  # noqa: E731
        return lax.while_loop(lambda state: state[0] < 3, body, (0, x @ NARROW))[1]

    report = crossflops.compare(
        function, (spec(2, 3),), train=True, tools=["xla-lowered"], isolate=False
    )
    [failure] = report.profiles
    assert "Reverse-mode differentiation does not work" in failure.message
    assert "JAX has no gradient" in report.training.uncounted[0].reason


@pytest.mark.parametrize("name", MODELS)
def test_what_xla_counts(name):
    """As of jax.value_and_grad, without the adds that make one number of n outputs; residual 0."""
    make, args, frozen = MODELS[name]
    model = make()
    (outputs, given), (loss, chosen) = summed_up(model, args, partial(is_trained, frozen))
    step = jax.jit(jax.value_and_grad(loss)).lower(*chosen)
    ends = jax.tree.leaves(jax.eval_shape(outputs, *given))
    tools = ["xla-lowered", "xla-compiled"]
    report = crossflops.compare(model, args, train=True, frozen=frozen, tools=tools, isolate=False)
    printed = step.cost_analysis()["flops"] - (sum(end.size for end in ends) - 1)
    assert report.reconciliation("xla-lowered").theirs == printed
    for tool in tools:
        account = report.reconciliation(tool)
        assert (account.ours, account.residual) == (report.training.macs, 0)
        assert {row.cause for row in account.explanations} & UNNAMED == set()


def test_dropout_in_training():
    """Of 2 x 5 elements, each dropped by a compare and scaled by 2 muls, and back by 2 muls."""

    class Dropping(nnx.Module):
        def __init__(self):
            self.a, self.b = nnx.Linear(3, 5, rngs=RANDOM), nnx.Dropout(0.3, rngs=RANDOM)

        def __call__(self, x):
            return self.b(self.a(x))

    report = crossflops.count(
        Dropping(), (spec(2, 3),), train=True, setting=Setting(training=True)
    )
    [row] = [row for row in report.by_op if row.op == "Dropout"]
    assert (report.uncounted, report.training.uncounted) == ((), ())
    assert (row.flops, row.training.backward_input_flops) == (30, 20)


def test_a_checkpoint_in_a_scan():
    """x W of 2 x 4 x 4 = 32 MACs runs again for its sine, in each of three layers."""
    step = crossflops.count(layers, (spec(2, 4),), train=True).training
    causes = {row.cause: row.macs for row in step.differences}
    assert causes["backward.checkpoint"] == step.recomputed_macs == 3 * 32
    assert "backward.attention-recomputed" not in causes


def test_checkpoints_in_one_another():
    """They are named."""
    inner = jax.checkpoint(lambda x: jnp.sin(x @ SQUARE))
    outer = jax.checkpoint(lambda x: inner(jnp.sin(x)))
    report = crossflops.count(lambda x: outer(x @ NARROW), (spec(2, 3),), train=True)
    assert "a checkpoint recomputes" in report.training.uncounted[0].reason


def test_parameters_that_are_an_argument():
    """x W1 tanh W2: 2*3*5 and 2*5*4 products, and gradients of W1, of W2 and of the tanh."""

    def function(params, x):
        return jnp.tanh(x @ params["a"]) @ params["b"]

    given = ({"a": spec(3, 5), "b": spec(5, 4)}, spec(2, 3))
    with pytest.raises(InputError, match="has no parameters"):
        crossflops.count(function, given, train=True)
    with pytest.raises(InputError) as refused:
        crossflops.count(function, given, train=True, trainable=["a"])
    assert "such as '0.a'" in refused.value.hint
    with pytest.raises(InputError, match=r"--frozen 0\.a and --trainable cannot be"):
        crossflops.count(function, given, train=True, trainable=["0"], frozen=["0.a"])
    for pattern, inputs, weights, size in (("0", 40, 70, 35), ("0.b", 0, 40, 20)):
        report = crossflops.count(
            function, given, train=True, trainable=[pattern], optimizer="sgd"
        )
        step = report.training
        assert (step.backward_input_macs, step.backward_weight_macs) == (inputs, weights)
        assert step.optimizer.parameters == size
        causes = {row.cause: row.macs for row in step.differences}
        assert causes["backward.first-layer"] == (-30 if pattern == "0" else -100)


def test_constants_beside_parameters_are_not_trained():
    """Sums of segments begin as zeros, which are no parameters: B alone has a gradient."""

    def function(params, x):
        summed = jax.ops.segment_sum(x @ params["a"], jnp.array([0, 0]), num_segments=1)
        return summed @ params["b"]

    given = ({"a": spec(3, 5), "b": spec(5, 4)}, spec(2, 3))
    step = crossflops.count(function, given, train=True, trainable=["0.b"]).training
    assert (step.backward_input_macs, step.backward_weight_macs) == (0, 20)


def test_a_loss_of_some_outputs():
    """x N, of which two products are made: the loss reaches one of them."""

    def function(x):
        hidden = x @ NARROW
        return {"a": hidden @ SQUARE, "b": hidden @ jnp.ones((5, 7))}

    def loss(results):
        return results["a"].sum() + lax.stop_gradient(results["b"]).sum()

    step = crossflops.count(function, (spec(2, 3),), train=True, loss=loss).training
    assert (step.backward_input_macs, step.backward_weight_macs) == (2 * 5 * 5, 30 + 50)
    for bad, message in ((lambda r: r["a"], "must be one number"), (lambda r: r["c"], "KeyError")):
        with pytest.raises(InputError, match=message):
            crossflops.count(function, (spec(2, 3),), train=True, loss=bad)
