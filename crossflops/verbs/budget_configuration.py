"""Read budgets from configuration files: each is a table about one model, or about a pattern of
files.

The table is `[budgets]` of `crossflops.toml`, or `[tool.crossflops.budgets]` of `pyproject.toml`,
with a table for each target. `target` names the model where a model has several budgets, and
`modules` and `operators` have rules about parts of it, by name or pattern::

    [budgets."model.onnx"]
    rules = ["macs <= 4.2G", "params <= +1%", "uncounted == 0"]
    inputs = ["1x3x224x224"]
    modules = {"encoder.layer.*" = ["macs <= 300M"]}
    operators = {Softmax = ["nodes == 0"]}

    [budgets.batch-of-8]
    target = "model.onnx"
    rules = ["macs <= 33.6G"]
    inputs = ["8x3x224x224"]

The configuration nearest to a model holds: that of its folder, or of one above, which has a
budget for it.
"""

import contextlib
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from crossflops.errors import InputError, UnknownNameError, nearest_name_hint
from crossflops.plugins.elsewhere import (
    NAME,
    PROJECT,
    config_table_heading,
    find_config_table,
    read_config_text,
)
from crossflops.report.budgets import BudgetRule, PartRules
from crossflops.report.recorded import NATIVE, OF_MODULES, OF_OPERATORS, RESIDUAL
from crossflops.targets.option_forms import FORMS, check_option_type
from crossflops.targets.request import Request

_TABLE = "budgets"
_PARTS: Mapping[str, Literal["module", "operator"]] = {
    "modules": "module",
    "operators": "operator",
}
_KEYS = ("rules", *_PARTS, "target", *FORMS)
_RULES_HINT = 'write rules = ["macs <= 1G"]'


class Budget(msgspec.Struct, frozen=True):
    """The rules about one model; `name` is its key in the baseline.

    `options` say how the model is built and run; `model` is there for an object. `file` is the
    configuration, "" where there is none.
    """

    name: str
    target: str
    rules: tuple[BudgetRule, ...]
    options: dict[str, Any]
    model: Any = None
    origin: str = ""
    parts: tuple[PartRules, ...] = ()
    file: str = ""

    @property
    def number_names(self) -> set[str]:
        """The names of the numbers in its rules, such as "macs"."""
        full = {rule.name for rule in self.rules}
        return full.union(rule.name for part in self.parts for rule in part.rules)

    def request(self, conventions: Sequence[str] = ()) -> Request:
        """Return the request that counts the model of the budget, also by these tool
        conventions.
        """
        model = self.target if self.model is None else self.model
        return Request.from_arguments(model, **self.options, as_=tuple(conventions))


def make_budget(
    name: str, target: str, provided: Mapping[str, Any], where: str, file: str = ""
) -> Budget:
    """Return the budget that a table of a configuration, or keyword arguments, define; raise
    InputError for an invalid entry.

    `where` names the table in messages.
    """
    options = dict(provided)
    rules = options.pop("rules", None)
    tables = {key: options.pop(key, None) for key in _PARTS}
    parts = tuple(
        part
        for key, table in tables.items()
        if table is not None
        for part in _parse_part_rules(key, table, where)
    )
    full = () if rules is None and parts else _parse_rule_list(rules, where, _RULES_HINT)
    keys = _KEYS if file else (*_PARTS, *FORMS)
    for option, value in options.items():
        if option not in FORMS:
            raise InputError(
                f"unknown key {option} in {where}",
                nearest_name_hint(option, keys, f"allowed: {', '.join(keys)}"),
            )
        check_option_type(option, value, f"{option} of {where}", in_toml=bool(file))
    for rule in full:
        _reject_unknown_number(rule, _NUMBERS_OF_MODELS, "model", where)
    if file:
        full = _with_line_numbers(full, file, name, "")
        parts = tuple(
            replace(part, rules=_with_line_numbers(part.rules, file, name, part.pattern))
            for part in parts
        )
    return Budget(name, target, full, options, parts=parts, file=file)


def _parse_rule_list(rules: Any, where: str, hint: str) -> tuple[BudgetRule, ...]:
    """Return the rules that a list of texts states; raise InputError, naming `where`, if it is
    empty or not a list of texts.
    """
    if not isinstance(rules, list | tuple) or not all(isinstance(text, str) for text in rules):
        raise InputError(f"{where} must have a list of rules", hint)
    if not rules:
        raise InputError(f"{where} has an empty list of rules", hint)
    return tuple(_parse_budget_rule(text, where) for text in rules)


def _parse_budget_rule(text: str, where: str) -> BudgetRule:
    """Return the rule that a text such as "macs <= 1G" states; an error message begins with
    `where`.
    """
    try:
        return BudgetRule.from_text(text)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.hint) from error


def _parse_part_rules(key: str, table: Any, where: str) -> Iterator[PartRules]:
    """Yield for each pattern of modules or operators in the table the rules about them."""
    kind = _PARTS[key]
    example = "encoder.*" if kind == "module" else "Conv"
    hint = f'write {key} = {{"{example}" = ["macs <= 1G"]}}'
    if not isinstance(table, Mapping) or not table:
        raise InputError(f"{key} of {where} must be a table of rules", hint)
    known = OF_MODULES if kind == "module" else OF_OPERATORS
    for pattern, texts in table.items():
        if not pattern:
            raise InputError(f"the name of one {kind} in {key} of {where} is empty", hint)
        rules = _parse_rule_list(texts, f"{pattern} in {key} of {where}", hint)
        for rule in rules:
            _reject_unknown_number(rule, known, kind, where)
        yield PartRules(kind=kind, pattern=str(pattern), rules=rules)


_NUMBERS_OF_MODELS = (*NATIVE, RESIDUAL)


def _reject_unknown_number(
    rule: BudgetRule, known: Sequence[str], subject: str, where: str
) -> None:
    """Raise UnknownNameError if the rule names a number that is not in `known` and is not a tool
    convention.

    A number of a convention may name its edition: thop@0.0.31.
    """
    from crossflops.tools.registry import all_conventions, parse_convention

    ids = [] if subject == "operator" else [convention.tool for convention in all_conventions()]
    if rule.name in known:
        return
    if rule.name.partition("@")[0] in ids:
        try:
            parse_convention(rule.name)
        except UnknownNameError as error:
            raise UnknownNameError(f"{where}: {error.message}", error.hint) from error
        return
    others = ", and the ids of `crossflops tools`" if ids else ""
    raise UnknownNameError(
        f"{where}: the budget {rule.text!r} names {rule.name}, "
        f"which is unknown for {subject} budgets",
        nearest_name_hint(rule.name, (*known, *ids), f"known: {', '.join(known)}{others}"),
    )


# The configuration of a target.


def find_budget_configuration(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Return (nearest configuration file with budgets, its table of budgets), from this folder
    upwards; raise InputError if there is none.
    """
    for file, table in _budget_configurations_upwards(folder):
        return file, table
    if beneath := _budget_files_beneath(folder):
        raise InputError(
            "no configuration file in this folder or its parents sets a budget; files in "
            f"subfolders do: {', '.join(beneath)}",
            "change to that folder, or give a model: crossflops check "
            f"{Path(beneath[0]).parent}/model.onnx",
        )
    file, _ = find_config_table(_TABLE, folder)
    raise InputError(
        "no configuration file in this folder or its parents sets a budget",
        f'write {_budget_heading("model.onnx", file)} with rules = ["macs <= 4.2G"] into '
        f"{file.name}",
    )


def _budget_heading(name: str, file: Path) -> str:
    """Return the heading of the table of a budget, such as [tool.crossflops.budgets."a.onnx"]."""
    return f'{config_table_heading(_TABLE, file)[:-1]}."{name}"]'


def _budget_files_beneath(folder: Path) -> list[str]:
    """Return the paths of the configuration files below the folder that have budgets, relative to
    it.
    """
    from crossflops.verbs.revisions import find_files_by_name

    with contextlib.chdir(folder):
        files = [file for name in (NAME, PROJECT) for file in find_files_by_name(name)]
    inside = (file for file in files if not file.startswith(os.pardir))
    return sorted(file for file in inside if find_config_table(_TABLE, (folder / file).parent)[1])


def replace_by_nearer_budgets(
    file: Path, budgets: Sequence[Budget]
) -> dict[Path, dict[str, Budget]]:
    """Return {configuration file: {budget name: budget}}: the budgets of `file`, each replaced by
    those of a configuration in a folder nearer to its model, where there is one.

    A model in a folder that has a budget for it by itself is held against that.
    """
    chosen: dict[Path, dict[str, Budget]] = {file: {}}
    for budget in budgets:
        nearer, own = find_target_budgets(budget.target, file.parent, below=file)
        if own:
            chosen.setdefault(nearer, {}).update({near.name: near for near in own})
        else:
            chosen[file][budget.name] = budget
    return chosen


def find_target_budgets(
    target: str, start: Path, below: Path | None = None
) -> tuple[Path, list[Budget]]:
    """Return (nearest configuration file with a budget for the target, these budgets); the list is
    empty if there is none.

    Those from the file `below` on are not looked at.
    """
    index = Path(os.path.normpath(start / target.partition(":")[0]))
    folder = index.parent if index.exists() else start
    file = start
    for file, table in _budget_configurations_upwards(folder):
        if file == below:
            break
        inside = _target_relative_to_folder(target, start, file.parent)
        budgets = [
            budget
            for budget in parse_budget_table(file, table)
            if target == budget.name or inside in (budget.name, budget.target)
        ]
        if budgets:
            return file, budgets
    return file, []


def _budget_configurations_upwards(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield (configuration file, its table of budgets) from the folder upwards, the nearest
    first.
    """
    seen: set[Path] = set()
    for index in (folder, *folder.parents):
        file, table = find_config_table(_TABLE, index)
        if table and file not in seen:
            seen.add(file)
            yield file, table


def _target_relative_to_folder(target: str, start: Path, folder: Path) -> str:
    """Return the target, whose path is relative to `start`, with a path relative to `folder`."""
    path, colon, rest = target.partition(":")
    index = start / path
    if not index.exists():
        return _normalize_target_path(target)
    return os.path.relpath(os.path.normpath(index), folder) + colon + rest


def _normalize_target_path(target: str) -> str:
    """Return the target with a normalized path: "./a//m.onnx" becomes "a/m.onnx"."""
    return os.path.normpath(target)


def reject_target_without_budget(target: str, start: Path) -> None:
    """Raise UnknownNameError or InputError, because no configuration has a budget for this
    target.
    """
    try:
        file, table = find_budget_configuration(start)
    except InputError as error:
        raise InputError(f"{target} has no budget: {error.message}", error.hint) from error
    raise UnknownNameError(f"{file} sets no budget for {target}", nearest_name_hint(target, table))


def parse_budget_table(file: Path, table: Mapping[str, Any]) -> list[Budget]:
    """Return the budgets of this configuration file; a target with a pattern gives one budget for
    each matching file.

    A file that has a table of its own is not taken by a pattern.
    """
    named = {_normalize_target_path(name) for name in table}
    budgets: list[Budget] = []
    origins: dict[str, str] = {}  # of each budget, the table that sets it
    for name, row in table.items():
        provided = dict(row) if isinstance(row, dict) else {"rules": row}
        where = f"{name} in {file}"
        _reject_unknown_tables(name, provided, file)
        target = provided.pop("target", name)
        if not isinstance(target, str) or not target:
            raise InputError(
                f"target of {where} must be text: the path of a model",
                'write target = "model.onnx"',
            )
        budget = make_budget(
            _normalize_target_path(name),
            _normalize_target_path(target),
            provided,
            where,
            str(file),
        )
        own = list(_expand_target_pattern(budget, file.parent, named))
        origins |= _table_by_budget_name(own, name, origins, file)
        budgets += own
    return budgets


def _table_by_budget_name(
    budgets: Sequence[Budget], table: str, others: Mapping[str, str], file: Path
) -> dict[str, str]:
    """Return {budget name: `table`} for these budgets; raise InputError if another table already
    sets one of them.
    """
    for budget in budgets:
        if budget.name in others:
            raise InputError(
                f"{others[budget.name]} and {table} in {file} set the same budget {budget.name}",
                f'rename one of them: {_budget_heading("NAME", file)} with target = "{table}"',
            )
    return {budget.name: table for budget in budgets}


def _reject_unknown_tables(name: str, provided: Mapping[str, Any], file: Path) -> None:
    """Raise InputError for a misspelt table such as [budgets.m.modles], and for one such as
    [budgets.model.onnx], where TOML needs quotes around a name with dots.
    """
    for key, value in provided.items():
        if key in _KEYS or not isinstance(value, dict):
            continue
        dotted = f"{name}.{key}"
        quoted = f"write {_budget_heading(dotted, file)} if the name of the model is {dotted}"
        raise InputError(
            f"{name} in {file} has an unknown table {key}", nearest_name_hint(key, _KEYS, quoted)
        )


def _expand_target_pattern(budget: Budget, folder: Path, named: set[str]) -> Iterator[Budget]:
    """Yield one budget for each file that its target's pattern matches; the budget itself without
    a pattern or a match.
    """
    if not glob.has_magic(budget.target) or (folder / budget.target).exists():
        yield budget
        return
    paths = sorted(glob.glob(budget.target, root_dir=folder, recursive=True))
    if not paths:
        yield budget  # which is told that no file is like it
    for path in paths:
        if path not in named or budget.name != budget.target:
            name = path if budget.name == budget.target else f"{budget.name} {path}"
            yield replace(budget, name=name, target=path)


def _with_line_numbers(
    rules: Sequence[BudgetRule], file: str, key: str, part: str
) -> tuple[BudgetRule, ...]:
    """Return copies of the rules with the line number at which the file states each."""
    return tuple(
        replace(rule, line=_rule_line_number(file, key, part, rule.text)) for rule in rules
    )


def _rule_line_number(file: str, key: str, part: str, rule: str) -> int:
    """Return the line number of a rule in a configuration file, or of its table's heading; 0 if
    neither is found.

    0 where the budget stands in no table of its own.
    """
    try:
        lines = read_config_text(Path(file)).splitlines()
    except (OSError, UnicodeDecodeError):
        return 0
    heading = 0
    in_part = not part
    for number, line in enumerate(lines, 1):
        if head := re.match(r"\s*\[+([^\]]*budgets[^\]]*)\]", line):
            is_own = _is_heading_of_budget(head[1], key)
            if not is_own and heading:
                break
            heading = heading or (number if is_own else 0)
            in_part = not part or part in head[1]
            continue
        if heading:
            in_part = in_part or part in line
            if in_part and (f'"{rule}"' in line or f"'{rule}'" in line):
                return number
    return heading


def _is_heading_of_budget(text: str, key: str) -> bool:
    """Return whether a TOML heading is that of the budget table with this name."""
    name = text.partition("budgets.")[2]
    quoted = re.match(r"\s*[\"']([^\"']*)[\"']|\s*([\w-]+)", name)
    return quoted is not None and _normalize_target_path(quoted[1] or quoted[2]) == key
