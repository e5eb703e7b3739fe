"""MACs of a JAX program, counted over its equations: no ONNX, and nothing of crossflops."""

from math import prod


def macs(jaxpr):
    """Multiply-accumulates of all contractions in a jaxpr, bodies of loops times their trips.

    Of a condition the branch with more; a `while` raises, since its trips are not in the program.
    """
    total = 0
    for eqn in jaxpr.eqns:
        name, params = eqn.primitive.name, eqn.params
        if name == "dot_general":
            (left, _), _ = params["dimension_numbers"]
            contracted = prod(eqn.invars[0].aval.shape[axis] for axis in left)
            # along no axis nothing is added up: these are multiplications alone
            total += prod(eqn.outvars[0].aval.shape) * contracted if left else 0
        elif name == "conv_general_dilated":
            total += _convolution(eqn)
        elif name == "scan":
            total += params["length"] * macs(params["jaxpr"].jaxpr)
        elif name == "cond":
            total += max(macs(branch.jaxpr) for branch in params["branches"])
        elif name == "custom_linear_solve":
            total += macs(params["jaxprs"].solve.jaxpr)
        elif name in ("jit", "pjit") and params.get("name") == "_resize":
            # JAX multiplies by matrices of weights, almost all 0: it costs what Resize costs
            continue
        elif name == "while":
            inner = macs(params["body_jaxpr"].jaxpr) + macs(params["cond_jaxpr"].jaxpr)
            if inner:
                raise ValueError("a loop of unknown trips")
        else:
            total += sum(macs(nested) for value in params.values() for nested in _inner(value))
    return total


def _convolution(eqn):
    """Places of the output x taps x input channels of a group.

    One that is dilated on its input (transposed) is the same the other way round: every element
    of the input is multiplied by the taps and output channels of its group. A batch of groups
    (gradients) is like groups of channels.
    """
    params = eqn.params
    numbers = params["dimension_numbers"]
    left, kernel = (operand.aval.shape for operand in eqn.invars)
    out = eqn.outvars[0].aval.shape
    taps = prod(kernel[axis] for axis in numbers.rhs_spec[2:])
    outputs, inputs = (kernel[axis] for axis in numbers.rhs_spec[:2])
    if any(step != 1 for step in params["lhs_dilation"]):
        return prod(left) * taps * outputs // params["feature_group_count"]
    return prod(out) * taps * inputs


def _inner(value):
    values = value if isinstance(value, tuple | list) else (value,)
    for candidate in values:
        candidate = getattr(candidate, "jaxpr", candidate)
        if hasattr(candidate, "eqns"):
            yield candidate
