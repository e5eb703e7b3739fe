"""Decide whether the weights of a target are built with values: by request or by size."""

from collections.abc import Callable

from crossflops.errors import InputError, ValuesNeededError
from crossflops.frontends import Source, require_frontend
from crossflops.ir.provenance import FAKE, META, REAL

LARGE = 2**30  # bytes of weights above which a model that is run by tools is built without them


def build_source_and_reason_for_values(
    load: Callable[[bool], Source], weights: str | None
) -> tuple[Source, str]:
    """Return a model, without weight values if possible, and why it needed them (else "").

    By default it has none where its weights are larger than `LARGE` or on the meta device: whoever
    asks in another process gets the same answer. Raises InputError where "fake" was asked for and
    cannot be.
    """
    if weights == REAL:
        return load(True), ""
    try:
        source = build_without_values(load, weights)
        source = require_frontend(source.model).to_fake_source(
            source
        )  # where it asked for the meta device
    except ValuesNeededError as error:
        reason = error.reason
    else:
        if weights == FAKE or source.weights != FAKE or source.stored > LARGE:
            return source, ""
        real = load(True)
        return (source if real.weights == META else real), ""
    if weights == FAKE:
        raise real_weights_error(reason, FAKE)
    source = load(True)
    return source, reason if source.stored > LARGE else ""


def build_without_values(load: Callable[[bool], Source], weights: str | None) -> Source:
    """Return the Source of `load(False)`, a model without weight values if its code allows that.

    Raises ValuesNeededError where it has values all the same, and "fake" was asked for.
    """
    source = load(False)
    if weights == FAKE and source.weights == REAL:
        raise ValuesNeededError(
            "the code of the model creates weights with values before crossflops can prevent it"
        )
    return source


def real_weights_error(reason: str, weights: str | None) -> InputError:
    """Return the error of a model that needs values of its weights, but is requested with
    `weights` "fake", or is given without values.
    """
    if weights == FAKE:
        return InputError(
            f"the model needs its weights, which --weights fake does not make: {reason}",
            "leave out --weights fake",
        )
    return InputError(
        f"the model needs its weights, but is given without them: {reason}",
        "give the model with values of its weights",
    )
