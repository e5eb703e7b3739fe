"""Count single passes of a language model that generates, each length once.

Every pass is counted as any model. A model of many layers is counted with one and two layers of
each kind, and checked as a whole at one prefill, and with a few layers at one step.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.frontends import Source, library_of_target, require_frontend
from crossflops.frontends.frontend import (
    NO_IMAGES,
    ONE_TOKEN,
    GenerationPasses,
    NewTokens,
    PromptImages,
)
from crossflops.hardware.step_traffic import Formats, node_loads, tensor_byte_count
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.ledger import UncountedNode
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count_nodes_with_their_bodies
from crossflops.ledger.memory import activation_peak_of_graph
from crossflops.targets.request import Request
from crossflops.threads import filter_warnings
from crossflops.verbs.count import CountedModel, ModelBuild, count_source

_CHECKED = 4  # layers of a model that checks the sum over layers
_MANY_LAYERS = 8  # from here on most passes are counted with fewer layers
_LAYERS, _TYPES = "num_hidden_layers", ("layer_types", "mlp_layer_types")
SMALLEST = 2  # tokens: models treat a single one apart
PassAmounts: TypeAlias = tuple[int, ...]


class CountedPass(msgspec.Struct, frozen=True):
    """One pass that was counted: its amounts of every kind, and bytes of the cache after it, of
    the weights that it must read, and of its activations; `kept` is all that a prefill kept.
    """

    amounts: PassAmounts
    cache_bytes: int
    weight_bytes: int
    peak_bytes: int
    kept: tuple[TensorSpec, ...] = ()


class PassCounter:
    """Counts single passes of one model at many lengths, each length once."""

    def __init__(
        self,
        source: Source,
        setting: Setting,
        batch: int,
        cache_precision: str = "",
        images: PromptImages = NO_IMAGES,
    ) -> None:
        """Record the model, the precision of its cache ("": that of the graph), and the images in
        a prompt. Raises InputError where it does not generate.
        """
        frontend = require_frontend(source.model)
        self.passes: GenerationPasses = frontend.generation_passes(source.model, images)
        self._setting, self._batch, self._cache = setting, batch, cache_precision
        self._prefills: dict[tuple[int, int], CountedPass] = {}
        self._steps: dict[tuple[int, int, NewTokens], CountedPass] = {}

    @property
    def pass_count(self) -> int:
        """The number of different passes that were counted."""
        return len(self._prefills) + len(self._steps)

    def prefill_amounts(self, prompt: int, logits: int = 1) -> PassAmounts:
        """Return MACs, FLOPs and bytes of a prefill of `prompt` tokens."""
        return self.get_or_count_prefill(prompt, logits).amounts

    def decoding_step_amounts(
        self, prompt: int, context: int, new: NewTokens = ONE_TOKEN
    ) -> PassAmounts:
        """Return MACs, FLOPs and bytes of a decoding step up to `context` tokens; for a decoder
        the prompt has no effect.
        """
        return self.get_or_count_step(prompt, context, new).amounts

    def get_or_count_step(
        self, prompt: int, context: int, new: NewTokens = ONE_TOKEN
    ) -> CountedPass:
        """Return the counted decoding step up to `context` tokens; it is counted at the first
        call.
        """
        key = (prompt if self.passes.is_encoder_decoder else 0, context, new)
        if key not in self._steps:
            self._steps[key] = self.count_new_step(prompt, context, new)
        return self._steps[key]

    def get_or_count_prefill(self, prompt: int, logits: int = 1) -> CountedPass:
        """Return the counted prefill of `prompt` tokens; it is counted at the first call."""
        if (prompt, logits) not in self._prefills:
            self.count_prefill_model(prompt, logits)
        return self._prefills[prompt, logits]

    def count_prefill_model(self, prompt: int, logits: int = 1) -> CountedModel:
        """Count a prefill of `prompt` tokens and keep its amounts; return the counted model."""
        counted = self._count_source_pass(self.passes.prefill(self._batch, prompt, logits))
        kept = counted.graph.outputs[1:]
        own = kept[:-1] if self.passes.is_encoder_decoder else kept
        written = self._bytes_in_cache_precision(own)
        amounts = _pass_amounts(
            counted, _CacheTraffic(0, 0), _CacheTraffic(_graph_tensor_bytes(own), written)
        )
        self._prefills[prompt, logits] = CountedPass(
            amounts, written, *_pass_memory(counted), tuple(kept)
        )
        return counted

    def count_new_step(self, prompt: int, context: int, new: NewTokens) -> CountedPass:
        """Return the counted decoding step over new tokens up to the `context`-th."""
        known = next(iter(self._prefills.values()), None) or self.get_or_count_prefill(SMALLEST)
        source = self.passes.step(prompt, context, known.kept, new)
        counted = self._count_source_pass(source)
        is_pair = self.passes.is_encoder_decoder
        past = [spec for spec in counted.graph.inputs if spec.name.startswith("past")]
        read = _CacheTraffic(_graph_tensor_bytes(past), self._bytes_in_cache_precision(past))
        grown = past[: len(past) // 2] if is_pair else past
        tokens = [_spec_of_last_tokens(spec, new.number) for spec in grown]
        written = _CacheTraffic(
            _graph_tensor_bytes(tokens), self._bytes_in_cache_precision(tokens)
        )
        after = self._bytes_in_cache_precision((*counted.graph.outputs[1:], *past[len(grown) :]))
        return CountedPass(_pass_amounts(counted, read, written), after, *_pass_memory(counted))

    def _bytes_in_cache_precision(self, specs: Iterable[TensorSpec]) -> int:
        """Return the bytes of tensors of the cache, in its precision."""
        return sum(tensor_byte_count(spec, self._cache) for spec in specs)

    def _count_source_pass(self, source: Source) -> CountedModel:
        """Return the count of one pass; raise InputError if one of its nodes cannot be counted."""
        with filter_warnings("ignore"):  # the report's own count tells them, once
            counted = count_source(source, self._setting, ())
        for row in counted.ledger.counts:
            if isinstance(row, UncountedNode):
                raise InputError(
                    f"node {row.node.key!r} of the prompt or generation pass is not counted: "
                    f"{row.reason}",
                    "give the node a formula with --formulas, or leave out --prompt and "
                    "--generate",
                )
        return counted


class _CacheTraffic(NamedTuple):
    """Bytes of the cache that a pass moves: as the graph stores them, and in their precision."""

    in_graph: int
    in_cache: int


def _graph_tensor_bytes(specs: Iterable[TensorSpec]) -> int:
    """Return the bytes of tensors as the graph stores them."""
    return sum(spec.nbytes for spec in specs)


def _spec_of_last_tokens(spec: TensorSpec, number: int) -> TensorSpec:
    """Return the part of a cached tensor, [..., tokens, depth], that a number of tokens has."""
    *outer, _, depth = spec.shape or (1, 1)
    return replace(spec, shape=(*outer, number, depth))


def _pass_amounts(model: CountedModel, read: _CacheTraffic, append: _CacheTraffic) -> PassAmounts:
    """Return (MACs, FLOPs, bytes read, bytes written, cache bytes read, cache bytes written) of a
    pass.

    Of the bytes that operators move, those of the cache are in its precision.
    """
    cost = model.ledger.total
    return (
        cost.macs,
        cost.flops,
        cost.bytes_read - read.in_graph + read.in_cache,
        cost.bytes_written - append.in_graph + append.in_cache,
        read.in_cache,
        append.in_cache,
    )


class PassMemory(NamedTuple):
    """The bytes of the weights that a pass must read, and the peak of its activations."""

    weight_bytes: int
    activation_peak_bytes: int


def _pass_memory(model: CountedModel) -> PassMemory:
    """Return the bytes of the weights and of the activations of a pass."""
    graph = model.graph
    rows = node_loads(
        _without_stored_constants(graph),
        count_nodes_with_their_bodies(graph),
        "fused-ideal",
        Formats(),
    )
    return PassMemory(sum(row.weights for row in rows), activation_peak_of_graph(graph).nbytes)


def _without_stored_constants(graph: Graph) -> Graph:
    """Return the graph in which tensors that no parameter or buffer holds are not stored.

    Up to some length an export folds the causal mask into a constant, which is not a weight.
    """
    nodes = tuple(
        replace(
            node,
            inputs=tuple(
                replace(spec, role="") if spec is not None and spec.role == "constant" else spec
                for spec in node.inputs
            ),
        )
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


# A model of many layers: its passes are sums over layers, and layers of one kind cost the same.


class LayeredCounter:
    """Counts a model of many layers from models that have one or two layers of each kind.

    f(model) = f(one of each kind) + sum over kinds of (n - 1) (f(one more of it) - f(one of each))
    """

    def __init__(
        self, base: PassCounter, more: Sequence[PassCounter], numbers: Sequence[int]
    ) -> None:
        """Record the model with one layer of each kind, the one with one more layer for each
        kind, and the number of layers of each kind.
        """
        self._base, self._more, self._numbers = base, tuple(more), tuple(numbers)
        self.passes = base.passes

    @property
    def pass_count(self) -> int:
        """The number of different passes that were counted, over all small models."""
        return self._base.pass_count + sum(counter.pass_count for counter in self._more)

    def with_layer_numbers(self, numbers: Sequence[int]) -> "LayeredCounter":
        """Return a counter for a model that has these numbers of layers of each kind."""
        return LayeredCounter(self._base, self._more, numbers)

    def prefill_amounts(self, prompt: int, logits: int = 1) -> PassAmounts:
        """Return MACs, FLOPs and bytes of a prefill of `prompt` tokens."""
        return self._sum_over_layers(lambda counter: counter.prefill_amounts(prompt, logits))

    def decoding_step_amounts(
        self, prompt: int, context: int, new: NewTokens = ONE_TOKEN
    ) -> PassAmounts:
        """Return MACs, FLOPs and bytes of a decoding step up to `context` tokens."""
        return self._sum_over_layers(
            lambda counter: counter.decoding_step_amounts(prompt, context, new)
        )

    def get_or_count_step(
        self, prompt: int, context: int, new: NewTokens = ONE_TOKEN
    ) -> CountedPass:
        """Return a decoding step up to `context` tokens; its activation peak is 0, which means
        unknown, because layers do not add up to it.
        """

        def cache_and_weight_bytes_of_step(counter: PassCounter) -> PassAmounts:
            """Return (bytes of the cache, bytes of the weights) of this step in one of the small
            models.
            """
            counted = counter.get_or_count_step(prompt, context, new)
            return counted.cache_bytes, counted.weight_bytes

        cache, weights = self._sum_over_layers(cache_and_weight_bytes_of_step)
        return CountedPass(self.decoding_step_amounts(prompt, context, new), cache, weights, 0)

    def _sum_over_layers(self, count: Callable[[PassCounter], PassAmounts]) -> PassAmounts:
        """Return the amounts of the whole model, from those that `count` gives for the small
        models.
        """
        base = count(self._base)
        total = list(base)
        for number, counter in zip(self._numbers, self._more, strict=True):
            for index, amount in enumerate(count(counter)):
                total[index] += (number - 1) * (amount - base[index])
        return tuple(total)


class LayerKinds:
    """The kinds of layers in the config of a decoder, in their order."""

    def __init__(self, config: Any) -> None:
        """Read a config of transformers."""
        self.number: int = getattr(config, _LAYERS, 0)
        lists = {name: getattr(config, name, None) for name in _TYPES}
        self._lists = {
            name: value
            for name, value in lists.items()
            if isinstance(value, list) and len(value) == self.number
        }
        columns = self._lists.values()
        self.kinds = list(zip(*columns, strict=True)) if columns else [()] * self.number
        self.distinct = list(dict.fromkeys(self.kinds))

    def config_arguments(self, kinds: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        """Return {name: value} of config arguments that give the model these layers."""
        columns = zip(*kinds, strict=True)
        named = {name: list(column) for name, column in zip(self._lists, columns, strict=False)}
        return {_LAYERS: len(kinds), **named}

    def layers_of_each_kind(self, kinds: Sequence[tuple[Any, ...]]) -> list[int]:
        """Return how many of these layers are of each distinct kind."""
        return [kinds.count(kind) for kind in self.distinct]


def build_layered_counter(
    request: Request,
    whole_model: PassCounter,
    config: Any,
    first: tuple[int, int],
    last: int,
    new: NewTokens = ONE_TOKEN,
) -> LayeredCounter | None:
    """Return a counter by layers that was checked against counts of whole models; None if it does
    not agree or has no use.

    Args:
        request: The request that builds the model.
        whole_model: The counter of the whole model.
        config: The config of the model.
        first: The tokens of the prefill that is checked, and of how many it has logits.
        last: The context of the step that is checked.
        new: The tokens of that step.
    """
    layers = LayerKinds(config)
    library = None if request.given is not None else library_of_target(str(request.target))
    named = library is not None and library.prefix == "hf"
    few = max(_MANY_LAYERS, len(layers.distinct) + _CHECKED)
    if whole_model.passes.is_encoder_decoder or not named or layers.number < few:
        return None

    def pass_counter_for_layers(kinds: Sequence[tuple[Any, ...]]) -> PassCounter:
        """Return a counter for a model that has only these layers."""
        arguments = {**request.arguments, **layers.config_arguments(kinds)}
        smaller = msgspec.structs.replace(request, arguments=arguments, sizes={})
        batch = request.sizes.get("batch", 1)
        with filter_warnings("ignore"):
            return ModelBuild(smaller).compute_with_values_if_needed(
                lambda source: PassCounter(source, request.setting, batch, request.cache_dtype)
            )

    distinct = layers.distinct
    more = [pass_counter_for_layers([*distinct, kind]) for kind in distinct]
    layered = LayeredCounter(
        pass_counter_for_layers(distinct), more, layers.layers_of_each_kind(layers.kinds)
    )
    if layered.prefill_amounts(*first) != whole_model.prefill_amounts(*first):
        return None
    larger = (
        [*layers.kinds[: _CHECKED - len(distinct)], *distinct]
        if len(distinct) < _CHECKED
        else [*distinct, *distinct]
    )
    expected = layered.with_layer_numbers(layers.layers_of_each_kind(larger))
    if expected.decoding_step_amounts(0, last, new) != pass_counter_for_layers(
        larger
    ).decoding_step_amounts(0, last, new):
        return None
    return layered
