"""Read the suite of a sweep: which models, at which inputs, for which tools.

It is a TOML file, or a mapping of the same form::

    tools = ["thop", "fvcore"]       # none: all that are installed; []: none is run
    as = ["exact-2k-1"]              # conventions, predicted without running a tool
    published = "published.csv"      # figures to set beside the counts: see `audit`

    [[model]]
    target = ["torchvision:resnet18", "torchvision:resnet50"]
    family = "ResNet"
    batch = [1, 8]

    [[model]]
    target = "model.onnx"
    input = ["1x3x224x224"]          # the inputs of one run; a list of lists: several runs
    tools = ["onnx-tool"]
"""

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import InputError, nearest_name_hint
from crossflops.files import read_file_bytes
from crossflops.frontends.named import SIZES
from crossflops.report.sweep import SweepCase
from crossflops.targets.request import Request

_SHARED = ("tools", "as", "train")
_SUITE_KEYS = (*_SHARED, "published", "model")
_MODEL_KEYS = ("target", "input", "arg", "dim", *SIZES, "family", *_SHARED)
_MODEL_TABLE = 'a model is written as [[model]] with target = "model.onnx"'
_EXAMPLE = 'write [[model]] with target = "model.onnx"'


class SuiteItem(msgspec.Struct, frozen=True, kw_only=True):
    """A case of a suite, with its tools (None: all that are installed) and its conventions."""

    case: SweepCase
    family: str = ""
    tools: tuple[str, ...] | None = None
    conventions: tuple[str, ...] = ()


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """The items of a suite; `published` is the path of a table of figures, or ""."""

    name: str
    items: tuple[SuiteItem, ...]
    published: str = ""


def read_suite(suite: str | Path | Mapping[str, Any]) -> Suite:
    """Return the suite of a TOML file, or of a mapping; raise InputError for what is not one."""
    if isinstance(suite, Mapping):
        return _suite_from_table(suite, "the suite", "suite", Path())
    path = Path(suite)
    try:
        table = tomllib.loads(read_file_bytes(path).decode("utf-8-sig"))
    except OSError as error:
        raise InputError(
            f"cannot read the suite {path}: {error.strerror}", "give a TOML file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"the suite {path} is not valid TOML: {error}",
            f"correct it at that place; {_MODEL_TABLE}",
        ) from error
    return _suite_from_table(table, str(path), path.name, path.parent)


def _suite_from_table(table: Mapping[str, Any], source: str, name: str, folder: Path) -> Suite:
    """Return the suite of a table; `source` names it in messages, `folder` is that of its file."""
    _refuse_unknown_keys(table, _SUITE_KEYS, source)
    models = table.get("model")
    if not isinstance(models, list | tuple) or not models:
        raise InputError(f"{source} names no model", _EXAMPLE)
    items: dict[bytes, SuiteItem] = {}
    for number, model in enumerate(models, 1):
        where = f"model {number} of {source}"
        if not isinstance(model, Mapping):
            raise InputError(f"{where} is not a table", _EXAMPLE)
        _refuse_unknown_keys(model, _MODEL_KEYS, where)
        for item in _model_items({**_options_for_all_models(table), **model}, where):
            key = msgspec.json.encode(item.case, order="sorted")
            items[key] = _join_tools_of_items(items[key], item) if key in items else item
    published = _text_or_default(table, "published", source)
    return Suite(
        name=name,
        items=tuple(items.values()),
        published=str(folder / published) if published else "",
    )


def _join_tools_of_items(first: SuiteItem, second: SuiteItem) -> SuiteItem:
    """Return one item of two that are about the same case: it has the tools of both."""
    tools = None
    if first.tools is not None and second.tools is not None:
        tools = tuple(dict.fromkeys((*first.tools, *second.tools)))
    conventions = tuple(dict.fromkeys((*first.conventions, *second.conventions)))
    return msgspec.structs.replace(first, tools=tools, conventions=conventions)


def _options_for_all_models(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a suite that hold for each of its models, unless the model has them."""
    return {key: table[key] for key in _SHARED if key in table}


def _refuse_unknown_keys(table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    """Raise InputError for a key that is not known."""
    for key in table:
        if key not in keys:
            raise InputError(
                f"unknown key {key!r} in {where}",
                nearest_name_hint(str(key), keys, f"known: {', '.join(keys)}"),
            )


def _model_items(model: Mapping[str, Any], where: str) -> Iterator[SuiteItem]:
    """Yield the items of one model table: each target at each input and each size."""
    targets = _texts_of_key(model, "target", where, '"model.onnx"')
    if not targets:
        raise InputError(f"{where} has no target", _EXAMPLE)
    train = model.get("train", False)
    if not isinstance(train, bool):
        raise InputError(
            f"train of {where} must be true or false, got {train!r}", "write train = true"
        )
    tools = _texts_of_key(model, "tools", where, '["thop"]') if "tools" in model else None
    conventions = _texts_of_key(model, "as", where, '["thop@0.0.31"]')
    if train and conventions:
        raise InputError(
            f"{where} has train and as, but a convention is predicted only for the forward pass",
            "leave out one of the two",
        )
    family = _text_or_default(model, "family", where)
    for target, inputs, sizes in itertools.product(
        targets, _input_choices(model, where), _size_choices(model, where)
    ):
        case = SweepCase(
            target=target,
            inputs=inputs,
            arguments=_table_of_key(model, "arg", where),
            dims=_table_of_key(model, "dim", where),
            sizes=sizes,
            train=train,
        )
        _refuse_invalid_case(case, where)
        yield SuiteItem(case=case, family=family, tools=tools, conventions=conventions)


def _refuse_invalid_case(case: SweepCase, where: str) -> None:
    """Raise InputError, naming the place in the suite, for options that do not go together."""
    try:
        build_request(case)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.hint) from error


def build_request(case: SweepCase) -> Request:
    """Return the request that counts a case; raise InputError for options that do not fit."""
    return Request.from_arguments(
        case.target,
        list(case.inputs),
        arguments=case.arguments or None,
        dims=case.dims or None,
        sizes=case.sizes,
        train=case.train,
    )


def _input_choices(model: Mapping[str, Any], where: str) -> list[tuple[str, ...]]:
    """Return the inputs of each run of a model: [()] where it has none."""
    value = model.get("input", [])
    nested = isinstance(value, list | tuple) and any(
        isinstance(row, list | tuple) for row in value
    )
    runs = [{"input": row} for row in value] if nested else [model]
    return [_texts_of_key(run, "input", where, '["1x3x224x224"]') for run in runs]


def _size_choices(model: Mapping[str, Any], where: str) -> list[dict[str, int]]:
    """Return each combination of the sizes of the usual input of a model: [{}] where it has
    none.
    """
    named = [name for name in SIZES if name in model]
    columns = []
    for name in named:
        value = model[name]
        sizes = value if isinstance(value, list | tuple) else [value]
        if not sizes or not all(type(size) is int and size > 0 for size in sizes):
            raise InputError(
                f"{name} of {where} must be a positive integer or a list of them, got {value!r}",
                f"write {name} = 8",
            )
        columns.append(sizes)
    return [dict(zip(named, sizes, strict=True)) for sizes in itertools.product(*columns)]


def _texts_of_key(table: Mapping[str, Any], key: str, where: str, example: str) -> tuple[str, ...]:
    """Return a text, or a list of texts, as a tuple; raise InputError for another value."""
    value = table.get(key, ())
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(
        isinstance(text, str) and text for text in texts
    ):
        raise InputError(
            f"{key} of {where} must be a text or a list of texts, got {value!r}",
            f"write {key} = {example}",
        )
    return tuple(dict.fromkeys(texts)) if key != "input" else tuple(texts)


def _text_or_default(table: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text of a key, "" without it; raise InputError for another value."""
    value = table.get(key, "")
    if not isinstance(value, str):
        raise InputError(f"{key} of {where} must be a text, got {value!r}", f'write {key} = "..."')
    return value


def _table_of_key(table: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return the table of a key, {} without it; raise InputError for another value."""
    value = table.get(key, {})
    if not isinstance(value, Mapping):
        raise InputError(
            f"{key} of {where} must be a table, got {value!r}", f"write {key} = {{width = 64}}"
        )
    return dict(value)
