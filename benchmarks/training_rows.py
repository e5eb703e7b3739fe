"""Published training speeds: which formula gives TFLOP/s from tokens per second, row by row.

    python -m benchmarks.training_rows TABLE.csv [--models FILE.json] [-o REPORT.md]

A row has a model, tokens of a sequence, tokens per second and TFLOP/s of one device. Both figures
are rounded, so FLOPs of a token lie in an interval, and a formula reproduces the row if its
number is in it. Three roundings are tried:

rounded     both figures to the last printed digit
truncated   TFLOP/s cut off, tokens per second rounded
samples     tokens per second follow from whole samples per second of all devices: only if every
            row of that release does so

Models are configs of transformers, by their names in the table. No weights are built.
"""

import argparse
import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from crossflops.ir.architecture import LanguageArchitecture
from crossflops.rules.rule import Convention
from crossflops.tools.registry import formula_conventions

MODELS = Path(__file__).with_name("training_models.json")
_TERA = 10**12
_TRAINING = ("", "pretrain", "pretraining", "train", "training")
_HEADS = {
    "model": r"model|name",
    "tokens": r"seq(_?len(gth)?)?|sequence_length|tokens",
    "devices": r"devices|gpus|chips",
    "speed": r"tokens?(_per_|/)s(ec(ond)?)?((_per_|/)(device|gpu))?",
    "tflops": r"(model_?)?tflops?((_per_|/)s)?((_per_|/)(device|gpu))?",
}
_OPTIONAL = {"task": r"task", "source": r"source", "release": r"release", "note": r"note"}


class SpeedRow(NamedTuple):
    """A row of a table, with its figures as they are printed."""

    line: int
    model: str
    tokens: int
    devices: int
    speed: str
    tflops: str
    task: str
    group: str
    note: str


class Candidate(NamedTuple):
    """A formula with its edition, and its FLOPs of a token in training."""

    name: str
    flops: Fraction


class JudgedRow(NamedTuple):
    """A row, the formula that gives it under a rounding, or what differs.

    `params` says whether printed parameters are those of the model, None if none are printed.
    """

    row: SpeedRow
    name: str
    rounding: str
    reason: str
    params: bool | None = None


def read_speed_rows(path: Path) -> list[SpeedRow]:
    """Read a table, whose columns are found by their names. Raises SystemExit without them."""
    lines = [
        (number, line)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    table = list(csv.reader(line for _, line in lines))
    columns = {name: _find_column(table[0], form) for name, form in (_HEADS | _OPTIONAL).items()}
    missing = [name for name in _HEADS if columns[name] is None]
    if missing:
        sys.exit(f"{path} has no column for {', '.join(missing)}; it has {', '.join(table[0])}")
    rows = []
    for (line, _), cells in zip(lines[1:], table[1:], strict=True):
        cell = {
            name: "" if index is None else cells[index].strip() for name, index in columns.items()
        }
        rows.append(
            SpeedRow(
                line, cell["model"], int(cell["tokens"]), int(cell["devices"]), cell["speed"],
                cell["tflops"], cell["task"], f"{cell['source']} {cell['release']}".strip(),
                cell["note"],
            )
        )  # fmt: skip
    return rows


def _find_column(heads: Sequence[str], form: str) -> int | None:
    """Return the index of the first column whose head has a form."""
    plain = [head.strip().casefold().replace(" ", "_") for head in heads]
    return next((index for index, head in enumerate(plain) if re.fullmatch(form, head)), None)


def half_digit(figure: str) -> Fraction:
    """Return half a unit of the last printed digit.

    >>> half_digit("33024"), half_digit("1.25")
    (Fraction(1, 2), Fraction(1, 200))
    """
    return Fraction(1, 2 * 10 ** len(figure.partition(".")[2]))


def flops_interval(row: SpeedRow, rounding: str) -> tuple[Fraction, Fraction]:
    """Return the least and the most FLOPs of a token that print as the row does."""
    speed, tflops = Fraction(row.speed), Fraction(row.tflops)
    half = half_digit(row.tflops)
    low, high = (0, 2 * half) if rounding == "truncated" else (-half, half)
    off = half_digit(row.speed)
    if rounding == "samples":
        off = Fraction(row.tokens, 2 * row.devices)
    return (tflops + low) * _TERA / (speed + off), (tflops + high) * _TERA / (speed - off)


def has_whole_samples(row: SpeedRow) -> bool:
    """Return whether whole samples per second of all devices print as these tokens."""
    one = Fraction(row.tokens, row.devices)
    samples = round(Fraction(row.speed) / one)
    return samples > 0 and abs(samples * one - Fraction(row.speed)) <= half_digit(row.speed)


def fitting_formulas(
    row: SpeedRow, candidates: Iterable[Candidate], whole_samples: bool
) -> dict[str, str]:
    """Return the strictest rounding under which each formula gives a row, by its name."""
    candidates = list(candidates)
    fits: dict[str, str] = {}
    for rounding in ("rounded", "truncated", *(["samples"] if whole_samples else [])):
        low, high = flops_interval(row, rounding)
        for name, flops in candidates:
            if low <= flops <= high:
                fits.setdefault(name, rounding)
    return fits


def distance_text(row: SpeedRow, candidates: Iterable[Candidate], name: str) -> str:
    """Return how far the printed figures are from a formula, or from the nearest without one."""
    printed = Fraction(row.tflops) * _TERA / Fraction(row.speed)
    near = min(
        candidates,
        key=lambda candidate: (candidate.name != name, abs(candidate.flops - printed)),
    )
    return f"{float(100 * (printed / near.flops - 1)):+.2f} % from {near.name}"


class ModelCandidates:
    """The numbers of all formulas for models of a file, each model and length once."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the entries of a file of models."""
        self._entries = entries
        self._architectures: dict[str, LanguageArchitecture] = {}
        self._numbers: dict[tuple[str, int], list[Candidate]] = {}
        self._formulas = [
            convention
            for convention in formula_conventions()
            if convention.formula is not None and convention.formula.passes == "training"
        ]

    def __contains__(self, model: str) -> bool:
        return model in self._entries

    def architecture(self, model: str, tokens: int) -> LanguageArchitecture:
        """Return the architecture of a model, for sequences of so many tokens."""
        from crossflops.frontends.pytorch.load.architecture import read_architecture

        entry = self._entries[model]
        config = dict(entry["config"])
        if "length" in entry:
            config[entry["length"]] = tokens
        key = json.dumps(config, sort_keys=True)
        if key not in self._architectures:
            self._architectures[key] = read_architecture(_empty_model(config))
        return self._architectures[key]

    def numbers(self, model: str, tokens: int) -> list[Candidate]:
        """Return the FLOPs of a token by every formula that has a number for the model."""
        if (model, tokens) not in self._numbers:
            architecture = self.architecture(model, tokens)
            found = _formula_numbers(self._formulas, architecture, tokens)
            depth = self._entries[model].get("mtp_layers", 0)
            if depth:
                found += _numbers_with_mtp(self._formulas, architecture, tokens, depth)
            self._numbers[model, tokens] = found
        return self._numbers[model, tokens]


def _empty_model(config: dict[str, Any]) -> Any:
    """Return the model of a config on the meta device."""
    import torch
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    from crossflops.frontends import load_with_retry

    known = AutoConfig.for_model(**config)
    # its import needs a real device
    model_class = load_with_retry(lambda: MODEL_FOR_CAUSAL_LM_MAPPING[type(known)])
    with torch.device("meta"):
        return model_class(known)


def _formula_numbers(
    formulas: Iterable[Convention], architecture: LanguageArchitecture, tokens: int
) -> list[Candidate]:
    """Return the FLOPs of a token by each formula, without those that have no number."""
    from crossflops.reconcile.formulas import reconcile_formulas

    accounts = reconcile_formulas(formulas, architecture, tokens, 1, 0).accounts
    return [
        Candidate(f"{account.tool}@{account.edition}", Fraction(account.theirs, tokens))
        for account in accounts
        if not account.obstacle
    ]


def _numbers_with_mtp(
    formulas: Iterable[Convention], architecture: LanguageArchitecture, tokens: int, depth: int
) -> list[Candidate]:
    """Return the numbers of Megatron with layers that predict further tokens.

    Each is one more of the last layer, two norms and a projection (3 h + 2 h^2), and the head
    again: Megatron-LM, `num_floating_point_operations`, mtp_num_layers.
    """
    from msgspec.structs import replace

    longer = replace(architecture, layers=architecture.layers + depth * (architecture.layers[-1],))
    hidden = architecture.hidden
    more = 6 * depth * (3 * hidden + 2 * hidden**2 + padded_head(architecture))
    return [
        Candidate(f"{name} with {depth} MTP", flops + more)
        for name, flops in _formula_numbers(formulas, longer, tokens)
        if name.startswith("megatron-")
    ]


def padded_head(architecture: LanguageArchitecture) -> int:
    """Return the elements of an output matrix whose rows are a multiple of 128."""
    return -(-architecture.vocabulary // 128) * 128 * architecture.hidden


def judge_table(rows: Sequence[SpeedRow], models: ModelCandidates) -> list[JudgedRow]:
    """Return the judgement of every row.

    The formula of a model in a release is the one that gives most of its rows. A row that only
    another formula gives is open, since one of many formulas fits by chance.
    """
    whole = dict.fromkeys((row.group for row in rows), True)
    for row in rows:
        whole[row.group] &= has_whole_samples(row)
    known = [row for row in rows if row.task.casefold() in _TRAINING and row.model in models]
    fits = {
        row.line: fitting_formulas(row, models.numbers(row.model, row.tokens), whole[row.group])
        for row in known
    }
    of_model = Counter((row.group, row.model, name) for row in known for name in fits[row.line])
    of_group = Counter((row.group, name) for row in known for name in fits[row.line])
    judged = []
    for row in rows:
        if row.line not in fits:
            packed = row.task.casefold() not in _TRAINING
            reason = (
                f"{row.task}: lengths of sequences are packed"
                if packed
                else "no config of this model is known here"
            )
            judged.append(JudgedRow(row, "", "", reason))
            continue
        usual = usual_formula(row, of_model, of_group)
        numbers, fit = models.numbers(row.model, row.tokens), fits[row.line]
        params = _check_params(row, models)
        if usual in fit:
            judged.append(JudgedRow(row, usual, fit[usual], "", params))
        else:
            chance = f"; {', '.join(fit)} by chance" if fit else ""
            reason = distance_text(row, numbers, usual) + chance
            judged.append(JudgedRow(row, "", "", reason, params))
    return judged


def usual_formula(
    row: SpeedRow,
    of_model: Mapping[tuple[str, str, str], int],
    of_group: Mapping[tuple[str, str], int],
) -> str:
    """Return the formula that gives most rows of a row's model in its release, "" without one.

    Of several it is the one that gives most rows of the release.
    """
    own = [name for group, model, name in of_model if (group, model) == (row.group, row.model)]

    def rows_given(name: str) -> tuple[int, int]:
        return of_model[row.group, row.model, name], of_group[row.group, name]

    return max(own, key=rows_given, default="")


def _check_params(row: SpeedRow, models: ModelCandidates) -> bool | None:
    """Return whether the parameters in a note are those of the model; None without any."""
    printed = re.search(r"params=(\d+)", row.note)
    if printed is None:
        return None
    return int(printed[1]) == models.architecture(row.model, row.tokens).parameters.total


def report_lines(table: str, judged: Sequence[JudgedRow]) -> list[str]:
    """Return a report in Markdown: totals, a line for each group and model, and open rows."""
    known = [one for one in judged if one.name or " from " in one.reason]
    exact = [one for one in known if one.name]
    params = [one.params for one in judged if one.params is not None]
    lines = [
        f"# {table}", "",
        f"{len(judged)} rows; {len(known)} of pretraining and of a known model, of which "
        f"{len(exact)} are reproduced within their rounding. Printed parameters are those of the "
        f"model in {sum(params)} of {len(params)} rows.", "",
        "Roundings: `rounded`, both figures to the last digit; `truncated`, TFLOP/s cut off; "
        "`samples`, tokens per second from whole samples per second of all devices, as in every "
        "row of that release.", "",
        "## By release and model", "",
        "| release | model | rows | reproduced | by | rounding |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]  # fmt: skip
    for group, model in dict.fromkeys((one.row.group, one.row.model) for one in judged):
        own = [one for one in judged if (one.row.group, one.row.model) == (group, model)]
        names = Counter(one.name for one in own if one.name)
        roundings = Counter(one.rounding for one in own if one.name)
        lines.append(
            f"| {group} | {model} | {len(own)} | {sum(names.values())} | {_tally(names)} "
            f"| {_tally(roundings)} |"
        )
    lines += [
        "", "## Rows that are open", "",
        "| line | release | model | tokens | tokens/s | TFLOP/s | what differs |",
        "| ---: | --- | --- | ---: | ---: | ---: | --- |",
    ]  # fmt: skip
    lines += [
        f"| {row.line} | {row.group} | {row.model} | {row.tokens} | {row.speed} | {row.tflops} "
        f"| {one.reason} |"
        for one in judged
        if not one.name
        for row in (one.row,)
    ]
    return lines


def _tally(counts: Mapping[str, int]) -> str:
    """Return the names with their numbers as text."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{name} ({number})" for name, number in ordered) or "-"


def main() -> None:
    """Read the table, judge its rows, and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("-o", "--output", type=Path)
    chosen = parser.parse_args()
    models = ModelCandidates(json.loads(chosen.models.read_text(encoding="utf-8")))
    judged = judge_table(read_speed_rows(chosen.table), models)
    text = "\n".join(report_lines(chosen.table.name, judged)) + "\n"
    if chosen.output is None:
        print(text, end="")
    else:
        chosen.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
