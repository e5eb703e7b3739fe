"""Build and count the backward pass of each custom derivative by itself."""

from crossflops.errors import CrossflopsError
from crossflops.frontends.frontend import Source
from crossflops.frontends.jax.convert.own_gradients import OwnEquation, backward_program
from crossflops.frontends.jax.passes import TO_BYTES, JaxConversion
from crossflops.frontends.jax.program import make_jax_program, record_jax_model
from crossflops.frontends.own_gradients import backward_cost_of_graph, unknown_custom_backward_cost
from crossflops.ir.trace import Setting
from crossflops.ir.training import OwnBackward, OwnBackwards


def jax_custom_backward_costs(source: Source, setting: Setting) -> OwnBackwards:
    """Return the cost of the backward pass of each function with a custom derivative."""
    model = record_jax_model(source.model, source.args, source.kwargs, setting)
    recorder = TO_BYTES.run(JaxConversion(function=model.pure)).recorder
    return tuple(
        map(_custom_derivative_backward_cost, recorder.own if recorder is not None else ())
    )


def _custom_derivative_backward_cost(own: OwnEquation) -> OwnBackward:
    """Return the cost of the backward pass of one function with a custom derivative."""
    name = own.name
    try:
        made = backward_program(own)
        if made.is_empty:
            return unknown_custom_backward_cost(name, made.places, "")
        graph = make_jax_program(Source(made.function, made.specs, {}), Setting(grad=False))[1]
        result, *gradients = (spec.name for spec in graph.outputs)
        return backward_cost_of_graph(
            name, graph, dict(zip(made.places, gradients, strict=True)), [result]
        )
    except CrossflopsError as error:
        reason = error.message
    except Exception as error:  # code of the model
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return unknown_custom_backward_cost(name, own.places, f"its backward pass: {reason}")
