"""What a probe of a JAX tool is, and how the ones beside it are written."""

from collections.abc import Callable
from typing import Any

import msgspec

from crossflops.normalize.inputs import parse

Built = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Probe(msgspec.Struct, frozen=True):
    """A named function or module with its inputs, written as on the command line.

    `flops` is what XLA's analysis of the program that it is given comes to, by hand; None where
    that would be no more than the analysis written down again.
    """

    name: str
    model: Callable[[], Any]
    inputs: tuple[str, ...]
    flops: int | None = None

    def build(self) -> Built:
        """The model, with positional and keyword inputs."""
        from crossflops.normalize.jax.inputs import make

        return (self.model(), *make(parse(self.inputs)))


def function(body: Callable[..., Any]) -> Callable[[], Any]:
    """A function that is `body(jax, *inputs)`."""

    def build() -> Any:
        import jax

        def run(*inputs: Any) -> Any:
            return body(jax, *inputs)

        return run

    return build


def module(body: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    """A module of Flax NNX that is `body(nnx, rngs)`."""

    def build() -> Any:
        from flax import nnx

        return body(nnx, nnx.Rngs(0))

    return build
