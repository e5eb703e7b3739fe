"""The cost of an optimizer's step, for each trained parameter tensor: operations and bytes.

A subtraction is an add, `rsqrt` a special and a division. Numbers that follow from the step alone
(bias corrections, a decayed rate) are made once by the host, and are left out. Bytes are those of
the fewest passes: within one every tensor is read and written once, and a pass ends where a sum
over the tensor must be known. Parameters, gradients and states have the type of the parameter.
"""

from collections.abc import Callable, Iterable, Mapping
from inspect import getdoc
from math import prod
from typing import NamedTuple, TypeAlias

from crossflops.errors import InputError, UnknownNameError
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.trace import Parameter, Trace
from crossflops.ir.training import OptimizerStep, Steps

Options: TypeAlias = Mapping[str, float]
Update: TypeAlias = Callable[[Parameter, Options], Cost]


class Optimizer(NamedTuple):
    """The update of one tensor, with the defaults of its options and its source."""

    name: str
    update: Update
    options: dict[str, float]
    source: str


OPTIMIZERS: dict[str, Optimizer] = {}
CLIP = "clip_norm"  # an option of all of them


def _register_optimizer(name: str, *, source: str, **options: float) -> Callable[[Update], Update]:
    """Return a decorator that registers a function as the update of an optimizer, with the
    defaults of its options.
    """

    def register_optimizer_update(update: Update) -> Update:
        """Register the function as the update of the optimizer `name`, and return it."""
        OPTIMIZERS[name] = Optimizer(name, update, {**options, CLIP: 0.0}, source)
        return update

    return register_optimizer_update


def optimizer_equation(name: str) -> str:
    """Return the text of an optimizer's update: the first paragraph of the docstring of its
    function.
    """
    return (getdoc(OPTIMIZERS[name].update) or "").partition("\n\n")[0].replace("\n", " ")


def _parameter_traffic_cost(parameter: Parameter, read: int, written: int) -> Cost:
    """Return the bytes of reading and of writing these numbers of elements of the parameter's
    type, as a cost.
    """
    width = parameter.nbytes // parameter.numel if parameter.numel else 0
    return Cost(bytes_read=read * width, bytes_written=written * width)


def _l2_norm_cost(count: int) -> Cost:
    """Return the cost of the L2 norm of `count` numbers: `count` muls, `count` - 1 adds and a
    square root.
    """
    return Cost(muls=count, adds=max(count - 1, 0), specials=1)


@_register_optimizer(
    "momentum",
    source="torch/optim/sgd.py: _single_tensor_sgd",
    momentum=0.9,
    nesterov=0.0,
    dampening=0.0,
    weight_decay=0.0,
)
@_register_optimizer(
    "sgd", source="torch/optim/sgd.py: _single_tensor_sgd", momentum=0.0, nesterov=0.0,
    dampening=0.0, weight_decay=0.0,
)  # fmt: skip
def sgd(parameter: Parameter, options: Options) -> Cost:
    """Return the cost of an SGD step: g += wd p; m = mu m + (1 - d) g; g = m, or with nesterov g +
    mu m; p -= lr g.

    A mul and an add for each line that is on, and a mul more with a dampening d. The first step,
    which copies g into m, is not told apart.
    """
    lines, reads = 1, 2
    if options["weight_decay"]:
        lines += 1
    dampened = 0
    if options["momentum"]:
        lines += 2 if options["nesterov"] else 1
        dampened = 1 if options["dampening"] else 0
        reads += 1
    element = Cost(muls=lines + dampened, adds=lines)
    count = parameter.numel
    return element * count + _parameter_traffic_cost(parameter, reads * count, (reads - 1) * count)


_ADAM = "torch/optim/adam.py: _single_tensor_adam"


def _adam_family_update(parameter: Parameter, options: Options, decay: Cost) -> Cost:
    """Return the cost of an Adam or AdamW step of a parameter; `decay` is the cost of the weight
    decay per element.
    """
    element = Cost(muls=5, adds=5, divs=1, specials=1)
    if options["bias_correction"]:
        element = element + Cost(divs=1)
    states = 2
    if options["amsgrad"]:
        element, states = element + Cost(compares=1), 3
    if options["weight_decay"]:
        element = element + decay
    count = parameter.numel
    return element * count + _parameter_traffic_cost(
        parameter, (2 + states) * count, (1 + states) * count
    )


@_register_optimizer("adam", source=_ADAM, weight_decay=0.0, bias_correction=1.0, amsgrad=0.0)
def adam_update(parameter: Parameter, options: Options) -> Cost:
    """Return the cost of an Adam step: g += wd p; m += (1 - b1)(g - m); v = b2 v + (1 - b2) g g; p
    -= s m / (sqrt(v) / c + eps).

    5 muls, 5 adds, 2 divs and a root; without a bias correction c a division less; amsgrad keeps
    the largest v, a compare; a weight decay is a mul and an add. s has the other correction in it.
    """
    return _adam_family_update(parameter, options, Cost(muls=1, adds=1))


@_register_optimizer(
    "adamw",
    source=f"{_ADAM} with decoupled_weight_decay; Loshchilov and Hutter, 1711.05101, algorithm 2",
    weight_decay=0.01,
    bias_correction=1.0,
    amsgrad=0.0,
)
def adamw(parameter: Parameter, options: Options) -> Cost:
    """Return the cost of an AdamW step: p *= 1 - lr wd, then Adam without a weight decay.

    The decay is one mul.
    """
    return _adam_family_update(parameter, options, Cost(muls=1))


@_register_optimizer(
    "adafactor", source="torch/optim/_adafactor.py: _single_tensor_adafactor", weight_decay=0.0
)
def adafactor(parameter: Parameter, options: Options) -> Cost:
    """Return the cost of an Adafactor step: R, C = lerp to the means of g^2 over rows and columns;
    V = R C / mean(R); u = g / sqrt(V); p -= max(eps, |p| / sqrt(n)) rho / max(1, |u| / (sqrt(n)
    d)) u.

    The last two axes r x c are factored. Of a row of c: a norm, its square, / c, and a lerp (2
    adds, a mul); columns likewise; R C has n muls, the mean r - 1 adds, a division and a compare,
    V n divisions. A vector keeps V whole: g^2 and a lerp. Then for each element a compare, rsqrt,
    u = g rsqrt(V), the norm of u, and a mul and an add of the update. A weight decay is a mul.
    Passes of a matrix: p, g, R, C -> R, C; g, R, C -> u; p, u -> p. Of a vector: p, g, V -> V, u;
    p, u -> p.
    """
    count, shape = parameter.numel, parameter.shape
    if not count:
        return ZERO
    scale = _l2_norm_cost(count) * 2 + Cost(
        divs=3, compares=2, muls=1
    )  # |p| and |u|, and what they make
    element = Cost(compares=1, specials=1, divs=1, muls=2, adds=1)
    if options["weight_decay"]:
        element = element + Cost(muls=1)
    if len(shape) < 2:
        squares = Cost(muls=2, adds=2) * count
        return (
            scale
            + element * count
            + squares
            + _parameter_traffic_cost(parameter, 5 * count, 3 * count)
        )
    rows, columns = shape[-2:]
    batches = prod(shape[:-2])
    lerp = Cost(muls=2, divs=1, adds=2)  # with the square of the norm
    sums = (_l2_norm_cost(columns) + lerp) * rows + (_l2_norm_cost(rows) + lerp) * columns
    mean = Cost(adds=rows - 1, divs=1, compares=1)
    outer = Cost(muls=count, divs=count)
    kept = batches * (rows + columns)
    byte_work = _parameter_traffic_cost(parameter, 5 * count + 2 * kept, 2 * count + kept)
    return scale + element * count + (sums + mean) * batches + outer + byte_work


@_register_optimizer(
    "lamb", source="You et al., 1904.00962, algorithm 2", weight_decay=0.01, bias_correction=1.0
)
def lamb(parameter: Parameter, options: Options) -> Cost:
    """Return the cost of a LAMB step: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; r = (m / c1)
    / (sqrt(v / c2) + eps) + wd p; p -= lr |p| / |r| r, with norms over the tensor.

    2 muls and an add; 3 muls and an add; 3 divs, a root and an add, without the corrections one
    div; a weight decay is a mul and an add; two norms, a div, a mul; a mul and an add.
    Passes: p, g, m, v -> m, v, r; p, r -> p.
    """
    count = parameter.numel
    if not count:
        return ZERO
    element = Cost(muls=6, adds=4, divs=1, specials=1)
    if options["bias_correction"]:
        element = element + Cost(divs=2)
    if options["weight_decay"]:
        element = element + Cost(muls=1, adds=1)
    ratio = _l2_norm_cost(count) * 2 + Cost(divs=1, muls=1)
    return element * count + ratio + _parameter_traffic_cost(parameter, 6 * count, 4 * count)


CLIPPING = "torch/nn/utils/clip_grad.py: clip_grad_norm_"


def gradient_clipping_cost(parameters: Iterable[Parameter]) -> Cost:
    """Return the cost of clipping gradients by their common norm: the norm of each gradient, the
    norm of these norms, and each gradient times min(1, max / (norm + eps)).

    An add, a division and a compare beside the norms; PyTorch multiplies even by 1. Two passes:
    gradients are read twice and written once.
    """
    cost, tensors = ZERO, 0
    for parameter in parameters:
        count, tensors = parameter.numel, tensors + 1
        cost = (
            cost
            + _l2_norm_cost(count)
            + Cost(muls=count)
            + _parameter_traffic_cost(parameter, 2 * count, count)
        )
    return cost + _l2_norm_cost(tensors) + Cost(adds=1, divs=1, compares=1) if tensors else ZERO


# What is asked for: "adamw,weight_decay=0,clip_norm=1".

_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


def parse_optimizer(text: str) -> tuple[Optimizer, dict[str, float]]:
    """Return the optimizer that a text such as "adamw,weight_decay=0" names, and the values of all
    its options.
    """
    name, *pairs = (part.strip() for part in text.split(","))
    chosen = OPTIMIZERS.get(name.casefold())
    if chosen is None:
        raise UnknownNameError(
            f"unknown optimizer {name!r}", f"choose one of {', '.join(sorted(OPTIMIZERS))}"
        )
    options = dict(chosen.options)
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in options:
            raise UnknownNameError(
                f"unknown option {key!r} of optimizer {chosen.name}",
                f"write one of: {', '.join(sorted(options))}",
            )
        options[key] = _parse_optimizer_option(pair, value)
    if options.get("nesterov") and not options.get("momentum"):
        raise InputError("nesterov requires a momentum", f"add momentum=0.9: {text},momentum=0.9")
    return chosen, options


def _parse_optimizer_option(pair: str, value: str) -> float:
    """Return the value of an option NAME=NUMBER of an optimizer (`pair` is the whole text). Raises
    InputError if it is invalid.
    """
    try:
        number = _WORDS[value] if value in _WORDS else float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e30:
        raise InputError(
            "an option of an optimizer must be NAME=NUMBER with a number from 0 to 1e30, got "
            f"{pair!r}",
            "write, for example, weight_decay=0.1",
        )
    return number


def optimizer_step(text: str, trace: Trace, exact: Steps) -> OptimizerStep:
    """Return the work of one optimizer step over all parameters that have a gradient, each stored
    tensor once.

    Raises what `parse_optimizer` raises.
    """
    chosen, options = parse_optimizer(text)
    parameters = parameters_to_update(trace, exact)
    update = sum((chosen.update(parameter, options) for parameter in parameters), ZERO)
    clipped = gradient_clipping_cost(parameters) if options[CLIP] else None
    return OptimizerStep.from_update(
        update,
        clipped,
        name=chosen.name,
        options=options,
        parameters=sum(parameter.numel for parameter in parameters),
        tensors=len(parameters),
        sources=(chosen.source, *((CLIPPING,) if clipped else ())),
    )


def parameters_to_update(trace: Trace, exact: Steps) -> list[Parameter]:
    """Return the parameters that get a gradient, each stored tensor once."""
    named = {
        f"{path}.{parameter.name}".removeprefix("."): parameter
        for module in trace.modules
        for path in module.names
        for parameter in module.params
    }
    if not trace.calls:  # weights of files are named by the file
        for module in trace.modules:
            named |= {parameter.name: parameter for parameter in module.params}
    by_storage: dict[object, Parameter] = {}
    for spec in exact.updated:
        parameter = named.get(spec.name)
        if parameter is None:
            by_storage[spec.name] = Parameter(spec.name, spec.shape or (), 0, spec.dtype)
        else:
            by_storage[parameter.storage] = parameter
    return list(by_storage.values())
