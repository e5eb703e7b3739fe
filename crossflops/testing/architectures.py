"""Make small random PyTorch models, for laws that must hold for every model.

A model is drawn as data, a list of steps, and built from it: so a failing example prints as
something that a person can read, and shrinks.
"""

from typing import Any

import msgspec
from hypothesis import strategies as st

Step = dict[str, Any]
_SIZE = 6  # height and width of the maps, so that every window fits


class Architecture(msgspec.Struct, frozen=True):
    """A random architecture: steps on feature maps, then a head; `batch` and `channels` are those
    of the input.
    """

    batch: int
    channels: int
    steps: tuple[Step, ...]
    head: str

    def build(self) -> tuple[Any, tuple[Any, ...]]:
        """Return (model in evaluation mode, tuple with its input tensor)."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = _Model(self).build_module()
            inputs = (torch.randn(self.batch, self.channels, _SIZE, _SIZE),)
        return model.eval(), inputs


_WIDTHS = st.sampled_from([2, 4, 6])
_STEPS = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["conv", "own_conv", "functional_conv", "direct_conv"]),
            "width": _WIDTHS,
            "kernel": st.sampled_from([1, 3]),
            "groups": st.sampled_from([1, 2]),
            "bias": st.booleans(),
            "dead": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {"kind": st.just("transposed"), "width": _WIDTHS, "groups": st.sampled_from([1, 2])}
    ),
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["batch_norm", "instance_norm", "group_norm"]),
            "affine": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["ReLU", "LeakyReLU", "PReLU", "GELU", "Hardswish", "Softmax2d"])}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("pool"), "which": st.sampled_from(["max", "avg", "adaptive"])}
    ),
    st.fixed_dictionaries({"kind": st.sampled_from(["residual", "twice", "gram", "gate"])}),
)
_HEADS = st.sampled_from(["linear", "tokens", "attention", "lstm", "gru", "einsum", "none"])


def random_architectures() -> st.SearchStrategy[Architecture]:
    """Return a hypothesis strategy for architectures of one to five steps and a head."""
    return st.builds(
        Architecture,
        batch=st.integers(1, 3),
        channels=_WIDTHS,
        steps=st.lists(_STEPS, min_size=1, max_size=5).map(tuple),
        head=_HEADS,
    )


class _Model:
    """Builds a module from an architecture: collects its layers and the steps of its forward."""

    def __init__(self, architecture: Architecture) -> None:
        from torch import nn

        self._nn = nn
        self._layers: list[tuple[str, Any]] = []
        self._bodies: list[Any] = []
        width = architecture.channels
        for index, step in enumerate(architecture.steps):
            width = self._add_step(f"step{index}", step, width)
        self._add_head(architecture.head, width)

    def build_module(self) -> Any:
        """Return the torch module that runs all collected steps in order."""
        bodies = self._bodies

        class RandomModule(self._nn.Module):  # type: ignore[name-defined]
            def forward(self, x: Any) -> Any:
                """Return the result of all steps in order, applied to x."""
                for body in bodies:
                    x = body(self, x)
                return x

        model = RandomModule()
        for name, layer in self._layers:
            model.add_module(name, layer)
        return model

    def _add_layer(self, name: str, layer: Any) -> None:
        """Add a layer under this name, and a step that calls it."""
        self._layers.append((name, layer))
        self._bodies.append(lambda model, x: getattr(model, name)(x))

    def _add_step(self, name: str, step: Step, width: int) -> int:
        """Add the layer of one architecture step, which has `width` input channels; return its
        output channels.
        """
        kind = step["kind"]
        if kind.endswith("conv"):
            return self._add_convolution(name, step, width)
        if kind == "transposed":
            layer = self._nn.ConvTranspose2d(width, step["width"], 2, 1, groups=step["groups"])
            self._add_layer(name, layer)
            return int(step["width"])
        if kind.endswith("norm"):
            self._add_norm(name, kind, step["affine"], width)
        elif kind == "pool":
            self._add_pool(name, step["which"])
        elif hasattr(self._nn, kind):
            self._add_layer(name, getattr(self._nn, kind)())
        else:
            self._add_composite_step(name, kind, width)
        return width

    def _add_convolution(self, name: str, step: Step, width: int) -> int:
        """Add a convolution that is called in the way that the step names; return its output
        channels.
        """
        import torch.nn.functional as functional

        class OwnConv(self._nn.Conv2d):  # type: ignore[name-defined]
            pass

        kernel = step["kernel"]
        options = {"padding": kernel // 2, "groups": step["groups"], "bias": step["bias"]}
        made = OwnConv if step["kind"] == "own_conv" else self._nn.Conv2d
        layer = made(width, step["width"], kernel, **options)
        self._layers.append((name, layer))

        def call_convolution(model: Any, x: Any) -> Any:
            """Return the result of the convolution for x, called in the way of the step: as a
            function, by `forward`, or as a module.
            """
            value = getattr(model, name)
            if step["kind"] == "functional_conv":
                return functional.conv2d(
                    x, value.weight, value.bias, padding=kernel // 2, groups=step["groups"]
                )
            return value.forward(x) if step["kind"] == "direct_conv" else value(x)

        def run_or_discard_convolution(model: Any, x: Any) -> Any:
            """Run the convolution; return its result, or x itself if the step is dead code."""
            result = call_convolution(model, x)
            return x if step["dead"] else result

        self._bodies.append(run_or_discard_convolution)
        return width if step["dead"] else int(step["width"])

    def _add_norm(self, name: str, kind: str, affine: bool, width: int) -> None:
        """Add a normalization of this kind: "batch_norm", "instance_norm" or "group_norm"."""
        nn = self._nn
        layers = {
            "batch_norm": lambda: nn.BatchNorm2d(width, affine=affine),
            "instance_norm": lambda: nn.InstanceNorm2d(width, affine=affine),
            "group_norm": lambda: nn.GroupNorm(2, width, affine=affine),
        }
        self._add_layer(name, layers[kind]())

    def _add_pool(self, name: str, kind: str) -> None:
        """Add a pooling of this kind: "max", "avg" or "adaptive"."""
        nn = self._nn
        layers = {
            "max": lambda: nn.MaxPool2d(3, 1, 1),
            "avg": lambda: nn.AvgPool2d(3, 1, 1),
            "adaptive": lambda: nn.AdaptiveAvgPool2d(4),
        }
        self._add_layer(name, layers[kind]())

    def _add_composite_step(self, name: str, kind: str, width: int) -> None:
        """Add a 1x1 convolution and a step that uses it in this way: "residual", "twice", "gate"
        or a matrix product.
        """
        import torch

        layer = self._nn.Conv2d(width, width, 1)
        self._layers.append((name, layer))

        def run_composite_step(model: Any, x: Any) -> Any:
            """Return the result of the step for x, which uses the convolution in the way of
            `kind`.
            """
            value = getattr(model, name)
            if kind == "residual":
                return x + value(x)
            if kind == "twice":
                return value(value(x))
            if kind == "gate":
                return torch.mul(x, value(x).sigmoid())
            return (x @ x.transpose(-1, -2)) @ value(x)

        self._bodies.append(run_composite_step)

    def _add_head(self, head: str, width: int) -> None:
        """Add the last layer of the model, "none" for no layer, on a tensor of (batch, positions,
        channels).
        """
        import torch

        nn = self._nn
        self._bodies.append(lambda model, x: x.flatten(2).transpose(1, 2))
        layers = {
            "linear": lambda: nn.Linear(width, 3),
            "tokens": lambda: nn.LayerNorm(width),
            "attention": lambda: nn.MultiheadAttention(width, 2, batch_first=True),
            "lstm": lambda: nn.LSTM(width, 4, 2, batch_first=True, bidirectional=True),
            "gru": lambda: nn.GRU(width, 4, batch_first=True, bias=False),
        }
        if head in layers:
            self._layers.append(("head", layers[head]()))

        def run_last_layer(model: Any, x: Any) -> Any:
            """Return the result of the last layer for x."""
            if head == "attention":
                return model.head(x, x, x, need_weights=False)[0]
            if head == "einsum":
                return torch.einsum("bij,bkj->bik", x, x)
            if head == "none":
                return x
            result = model.head(x)
            return result[0] if isinstance(result, tuple) else result

        self._bodies.append(run_last_layer)
